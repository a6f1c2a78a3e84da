/** `ip` with these commands, in this thread's network namespace. Throws Error when one fails. */
export function ip(lines: readonly string[]): void {
  run(['ip', '-batch', '-'], `${lines.join('\n')}\n`)
}

/** Any tool with this standard input: what it printed. Throws Error when it fails. */
export function run(argv: readonly string[], stdin = ''): string {
  const { success, stdout, stderr } = Bun.spawnSync([...argv], {
    stdin: Buffer.from(stdin),
    stdout: 'pipe',
    stderr: 'pipe',
  })
  if (!success) throw new Error(`${argv.join(' ')} failed: ${stderr.toString().slice(0, 500)}`)
  return stdout.toString()
}
