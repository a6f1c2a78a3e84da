// Rules that can lose or change packets, in nft, in the old iptables and of IPsec.
import { has } from '../../../lib/os/exec.ts'
import { hasIpsec } from '../../../lib/os/ipsec.ts'
import type { Run } from '../../../lib/os/run.ts'
import { isSix } from '../../../lib/text/cidr.ts'
import { isAbout } from './about.ts'
import type { Scope, Suspect } from './suspect.ts'

/** What a rule does that can lose or change a packet. */
const HARMFUL = /\b(drop|reject|queue|notrack|masquerade|redirect|dnat|snat)\b|\b(ttl|hoplimit) set\b|meta mark set/

/** The rules of nft that are not plumb's, with their handles. Throws Error. */
export async function readNft(run: Run, scope: Scope): Promise<Suspect[]> {
  if (!has('nft')) return []
  const { status, stdout, stderr } = await run(['nft', '-a', '-s', '-t', 'list', 'ruleset'], '')
  if (status !== 0) throw new Error(stderr.split('\n', 1)[0] || `nft ended with status ${status}`)
  const found: Suspect[] = []
  let [table, chain, hook] = ['', '', '']
  for (const line of stdout.split('\n')) {
    const text = line.trim()
    table = /^table (\S+ \S+) \{/.exec(text)?.[1] ?? table
    const named = /^chain (\S+) \{/.exec(text)?.[1]
    if (named !== undefined) [chain, hook] = [named, '']
    hook = /\bhook (.+?) priority/.exec(text)?.[1] ?? hook
    if (/^\w+ plumb([-_]|$)/.test(table) || isUsual(table, chain)) continue
    if (/policy drop;/.test(text))
      found.push({ text: `the chain ${table} ${chain} at hook ${hook} drops what no rule of it accepts` })
    const [, rule = '', handle] = /^(.*) # handle (\d+)$/.exec(text) ?? []
    if (handle === undefined || named !== undefined || !HARMFUL.test(rule) || !isAbout(rule, scope)) continue
    found.push({
      text: `the rule "${rule}" in the chain ${table} ${chain}${hook === '' ? '' : ` at hook ${hook}`}`,
      undo: `nft delete rule ${table} ${chain} handle ${handle}`,
    })
  }
  return found
}

// Chains of programs that translate for pods, as plumb does.
function isUsual(table: string, chain: string): boolean {
  return /^(KUBE|CNI|FLANNEL|DOCKER)-/.test(chain) || /\bkube-proxy\b/.test(table)
}

/** The rules in the old tables of iptables. Throws Error. */
export async function readLegacy(run: Run, scope: Scope): Promise<Suspect[]> {
  const found: Suspect[] = []
  for (const [tool, names] of [
    ['iptables-legacy', 'ip_tables_names'],
    ['ip6tables-legacy', 'ip6_tables_names'],
  ] as const) {
    // The tool would make the tables.
    if ((await run(['cat', `/proc/net/${names}`], '')).stdout.trim() === '' || !has(`${tool}-save`)) continue
    const { status, stdout, stderr } = await run([`${tool}-save`], '')
    if (status !== 0) throw new Error(stderr.split('\n', 1)[0] ?? '')
    let table = ''
    for (const line of stdout.split('\n')) {
      table = /^\*(\S+)/.exec(line)?.[1] ?? table
      const six = tool.startsWith('ip6')
      const isOfFamily = scope.ips.some((ip) => isSix(ip) === six)
      const [, dropping] = /^:(\S+) DROP\b/.exec(line) ?? []
      if (dropping !== undefined && isOfFamily)
        found.push({ text: `the chain ${table} ${dropping} of ${tool} drops what no rule of it accepts` })
      if (!line.startsWith('-A ') || !/-j (DROP|REJECT|NOTRACK|DNAT|SNAT|MASQUERADE|TTL|HL|CT|NFQUEUE)\b/.test(line))
        continue
      if (/PLUMB-/.test(line) || !isOfFamily || !isAbout(line, scope)) continue
      found.push({
        text: `the rule "${line}" in the table ${table} of ${tool}`,
        undo: `${tool} -t ${table} ${line.replace(/^-A/, '-D')}`,
      })
    }
  }
  return found
}

/** The policies of IPsec. Throws Error. */
export async function readXfrm(run: Run, scope: Scope): Promise<Suspect[]> {
  if (!hasIpsec()) return []
  const { status, stdout } = await run(['ip', 'xfrm', 'policy', 'show'], '')
  // A kernel without IPsec has no policies.
  if (status !== 0) return []
  return stdout
    .split(/^(?=src )/m)
    .filter((text) => text.startsWith('src '))
    .flatMap((text): Suspect[] => {
      const [, src = '', dst = ''] = /^src (\S+) dst (\S+)/.exec(text) ?? []
      const [, dir = ''] = /\bdir (\S+)/.exec(text) ?? []
      if (!isAbout(`${src} ${dst}`, scope)) return []
      const action = /\baction block/.test(text) ? 'blocks' : 'wants IPsec for'
      return [
        {
          text: `the xfrm policy ${dir} ${action} ${src} → ${dst}`,
          undo: `ip xfrm policy delete src ${src} dst ${dst} dir ${dir}`,
        },
      ]
    })
}
