/**
 * A text for one line of a log, a terminal or a page. Control characters, which end the line, move the cursor or turn
 * the text around them (bidi), are escaped as in JSON.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Bidi_Control}]/gu, (sign) =>
    sign === '\n' ? '\\n' : `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

/** A name in the same form, cut at 80 characters, so that a hostile name cannot flood a log. */
export function printableName(name: string): string {
  return printable(name.length > 80 ? `${name.slice(0, 79)}…` : name)
}
