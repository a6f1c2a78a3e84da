import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Node, UNDERLAY } from './nodes.ts'

const VARIABLES = ['NETWORK', 'SUBNET', 'IPV6SUBNET', 'PUBLIC_IP', 'PUBLIC_IPV6'] as const

/** One call of the command: its words, flannel's variables that it had, and its standard input. */
export interface Noted {
  readonly words: string
  readonly env: Readonly<Partial<Record<(typeof VARIABLES)[number], string>>>
  readonly input: string
}

/**
 * A command for backend extension in a folder that nodes share. It notes each call in a file of the node, in one
 * write. As `add` and `remove` it also makes the route to the peer and removes it. As `data` it prints a text with the
 * address of the node. A file `fail-WORD` in the folder makes it fail.
 */
export function notingCommand(dir: string): { readonly path: string; calls(node: Node): Noted[] } {
  const path = join(dir, 'note')
  const env = VARIABLES.map((name) => `[ -z "\${${name}+x}" ] || printf '%s=%s\\n' ${name} "$${name}" >>$call`)
  writeFileSync(
    path,
    `#!/bin/sh
own=$(ip -o -4 address show dev eth0 | sed 's/.*inet \\([^/]*\\).*/\\1/')
call=${dir}/call.$$
printf '\\036%s\\n' "$*" >$call
${env.join('\n')}
printf '\\037' >>$call
cat >>$call
cat $call >>${dir}/calls.$own
case $1 in
  add) ip route replace $SUBNET via $PUBLIC_IP ;;
  remove) ip route delete $SUBNET via $PUBLIC_IP ;;
  data) printf ' <&"\\n%s \\n\\n' $own; echo second >&2 ;;
esac
if [ -e ${dir}/fail-$1 ]; then echo "secret of $1"; exit 3; fi
`,
  )
  chmodSync(path, 0o755)
  return {
    path,
    calls(node) {
      const file = join(dir, `calls.${UNDERLAY.v4(node.n)}`)
      if (!existsSync(file)) return []
      return readFileSync(file, 'utf8').split('\x1e').slice(1).map(notedOf)
    },
  }
}

function notedOf(text: string): Noted {
  const [head = '', input = ''] = text.split('\x1f')
  const [words = '', ...lines] = head.split('\n').filter(Boolean)
  const env = lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)])
  return { words, env: Object.fromEntries(env), input }
}
