import { has } from '../../lib/os/exec.ts'
import { isThere } from '../../lib/os/nftables.ts'
import { readText } from '../../lib/os/reading.ts'
import type { Run } from '../../lib/os/run.ts'
import { ExecError } from '../../lib/text/errors.ts'

/** The table of kube-proxy's nftables mode, one per family (pkg/proxy/nftables). */
const TABLE = 'kube-proxy'
/** The chain of its iptables mode, and of ipvs mode (pkg/proxy/iptables). */
const CHAIN = 'KUBE-SERVICES'
/** Chains of kube-proxy. kubelet's own begin with KUBE-, too, and stay: KUBE-KUBELET-CANARY, KUBE-FIREWALL. */
const OWN = /^KUBE-(SERVICES|NODEPORTS|NODE-PORT|POSTROUTING|MARK-MASQ|MARK-DROP|LOAD-BALANCER|PROXY-FIREWALL|PROXY-CANARY|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER|EXTERNAL-SERVICES|FORWARD|(SVC|SVL|SEP|FW|EXT|XLB)-\w+)$/
const FAMILIES = ['ip', 'ip6'] as const

/** What kube-proxy left on the node, or keeps there, in words. Empty when there is nothing. */
export function kubeProxyRules(): string[] {
  return FAMILIES.flatMap((family) => [...(isThere(family, TABLE) ? [`nft table ${family} ${TABLE}`] : []), ...(isThere(family, 'nat', CHAIN) ? [`${family}tables chain ${CHAIN}`] : [])])
}

/** Removes what kube-proxy left on the node: its nft tables, and its chains of iptables with the jumps to them. Gives the names of what it removed. Throws ExecError. */
export async function removeKubeProxy(run: Run): Promise<string[]> {
  const done: string[] = []
  for (const family of FAMILIES) {
    if (isThere(family, TABLE)) {
      await must(['nft', 'delete', 'table', family, TABLE], '', run)
      done.push(`nft table ${family} ${TABLE}`)
    }
    const isLegacy = (readText(`/proc/net/${family}_tables_names`) ?? '') !== ''
    const tools = [...(['nat', 'filter', 'mangle'].some((table) => isThere(family, table)) ? [`${family}tables-nft`] : []), ...(isLegacy ? [`${family}tables-legacy`] : [])]
    for (const tool of tools.filter((one) => has(`${one}-save`))) for (const table of ['nat', 'filter', 'mangle']) done.push(...(await removeChains(tool, table, run)))
  }
  return done
}

async function removeChains(tool: string, table: string, run: Run): Promise<string[]> {
  const { status, stdout } = await run([`${tool}-save`, '-t', table], '')
  if (status !== 0) return []
  const lines = stdout.split('\n')
  const chains = lines.flatMap((line) => (/^:(\S+) /.exec(line)?.[1] ?? '').match(OWN)?.[0] ?? [])
  if (chains.length === 0) return []
  const known = new Set(chains)
  const jumps = lines.filter((line) => {
    const [, from = '', to = ''] = /^-A (\S+) .*-[jg] (\S+)/.exec(line) ?? []
    return known.has(to) && !known.has(from)
  })
  await must([`${tool}-restore`, '--noflush', '--wait'], [`*${table}`, ...jumps.map((line) => line.replace('-A ', '-D ')), ...chains.map((one) => `-F ${one}`), ...chains.map((one) => `-X ${one}`), 'COMMIT', ''].join('\n'), run)
  return [`${tool} ${table}: ${chains.length} chains of kube-proxy`]
}

async function must(argv: readonly string[], stdin: string, run: Run): Promise<void> {
  const { status, stderr } = await run(argv, stdin)
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
