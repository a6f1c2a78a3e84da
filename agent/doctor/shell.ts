/** A word of a shell's command line, in single quotes where it needs them (POSIX shell, 2.2.2). */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}
