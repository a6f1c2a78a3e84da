import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/**
 * A plugin that somebody else wrote, in a directory of its own: a shell script that keeps what it is called with, and
 * answers as it is told.
 */
export function foreignPlugin(answers: Readonly<Record<string, object>>, type = 'pool') {
  const dir = mkdtempSync('/run/pool-')
  const script = `#!/bin/sh
cd '${dir}'
echo "$CNI_COMMAND $CNI_CONTAINERID" >>calls
echo "pool: $CNI_COMMAND" >&2
cat >"stdin.$CNI_COMMAND"
[ -e "answer.$CNI_COMMAND" ] && cat "answer.$CNI_COMMAND"
[ -e "status.$CNI_COMMAND" ] && exit 1
exit 0
`
  writeFileSync(join(dir, type), script, { mode: 0o755 })
  writeFileSync(join(dir, 'calls'), '')
  const answer = (command: string, text: string) => writeFileSync(join(dir, `answer.${command}`), text)
  for (const [command, one] of Object.entries(answers)) answer(command, JSON.stringify(one))
  return {
    dir,
    type,
    answer(command: string, text: string) {
      answer(command, text)
      rmSync(join(dir, `status.${command}`), { force: true })
    },
    fail(command: string, code: number, msg: string) {
      answer(command, JSON.stringify({ cniVersion: '1.1.0', code, msg }))
      writeFileSync(join(dir, `status.${command}`), '')
    },
    stdin: (command: string) => readFileSync(join(dir, `stdin.${command}`), 'utf8'),
    calls: () => readFileSync(join(dir, 'calls'), 'utf8').split('\n').filter(Boolean),
    forget: () => writeFileSync(join(dir, 'calls'), ''),
  }
}
