// The nft table of a trace. Its chains let all packets pass. A first chain of each way into the namespace marks the
// packet, and the kernel then tells each rule that the packet meets. A chain at each other hook shows the packet there.

/** The chains of the table by the hooks of nft. */
export type Hook = 'prerouting' | 'input' | 'forward' | 'output' | 'postrouting'
const ALL: readonly Hook[] = ['prerouting', 'input', 'forward', 'output', 'postrouting']
/** Before all other rules. `postrouting` is after them, because it shows what they made of the packet. */
const [FIRST, LAST] = [-400, 400]

/** The name of the table of a trace. Two traces at once have a table each. */
export function tableName(id: string): string {
  return `plumb_trace_${id}`
}

/** The lines that make the table in one family of nft. The conditions select the packets. Pure. */
export function tableOf(name: string, family: 'inet' | 'bridge', conditions: readonly string[]): string {
  const marks = conditions.map((one) => `    ${one} meta nftrace set 1`)
  // Conntrack gives the answer its addresses back before the hook forward, so that the rule of UDP knows it there.
  const isMarked = (hook: Hook) => hook === 'prerouting' || hook === 'output' || hook === 'forward'
  return [
    `table ${family} ${name} {`,
    ...ALL.flatMap((hook) => [
      `  chain ${hook} {`,
      `    type filter hook ${hook} priority ${hook === 'postrouting' ? LAST : FIRST}; policy accept;`,
      ...(isMarked(hook) ? marks : []),
      '  }',
    ]),
    '}',
    '',
  ].join('\n')
}

/** The lines that remove the table, also where there is none. Pure. */
export function removalOf(name: string): string[] {
  return (['inet', 'bridge'] as const).map((family) => `table ${family} ${name}\ndelete table ${family} ${name}\n`)
}
