/** Text for one line of a log or a terminal: what would end the line, or move the cursor, is written as JSON writes it. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, (sign) => (sign === '\n' ? '\\n' : `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`))
}

/** The same of a name: 80 characters of it at most, so that a hostile one cannot flood a log. */
export function printableName(name: string): string {
  return printable(name.length > 80 ? `${name.slice(0, 79)}…` : name)
}
