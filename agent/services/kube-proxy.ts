import { has } from '../../lib/os/exec.ts'
import { isLink } from '../../lib/os/link-state.ts'
import { isThere } from '../../lib/os/nftables.ts'
import { readText } from '../../lib/os/reading.ts'
import type { Run } from '../../lib/os/run.ts'
import { listed } from '../../lib/os/show.ts'
import { ExecError } from '../../lib/text/errors.ts'

/** The table of kube-proxy's nftables mode, one per family (pkg/proxy/nftables). */
const TABLE = 'kube-proxy'
/** The chain of its iptables mode, and of ipvs mode (pkg/proxy/iptables). */
const CHAIN = 'KUBE-SERVICES'
/**
 * Chains of kube-proxy (pkg/proxy/iptables/cleanup.go). kubelet's own begin with KUBE-, too, and stay:
 * KUBE-KUBELET-CANARY, KUBE-FIREWALL, KUBE-MARK-DROP.
 */
const OWN =
  /^KUBE-(SERVICES|NODEPORTS|NODE-PORT|POSTROUTING|MARK-MASQ|LOAD-BALANCER|PROXY-FIREWALL|PROXY-CANARY|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER|EXTERNAL-SERVICES|FORWARD|(SVC|SVL|SEP|FW|EXT|XLB)-\w+)$/
const FAMILIES = ['ip', 'ip6'] as const
const TABLES = ['nat', 'filter', 'mangle'] as const

/** The link that has all Services' addresses in ipvs mode (pkg/proxy/ipvs). */
const IPVS_LINK = 'kube-ipvs0'

/** What kube-proxy left on the node, or keeps there, in words. Empty when there is nothing. */
export async function kubeProxyRules(run: Run): Promise<string[]> {
  const found: string[] = []
  for (const family of FAMILIES) {
    if (isThere(family, TABLE)) found.push(`nft table ${family} ${TABLE}`)
    if (isThere(family, 'nat', CHAIN)) found.push(`${family}tables chain ${CHAIN}`)
    const isLegacy = legacyTables(family).includes('nat')
    if (isLegacy && (await saved(`${family}tables-legacy`, 'nat', run)).includes(`:${CHAIN} `))
      found.push(`${family}tables-legacy chain ${CHAIN}`)
  }
  return [...found, ...(isLink(IPVS_LINK, 'host') ? [`link ${IPVS_LINK}`] : [])]
}

/**
 * Removes what kube-proxy left on the node: its nft tables, its chains of iptables with the jumps to them, and the link
 * of its ipvs mode. Gives the names of what it removed. Virtual servers of ipvs stay. Without their addresses on a link
 * no packet gets to them. Throws ExecError.
 */
export async function removeKubeProxy(run: Run): Promise<string[]> {
  const done: string[] = []
  for (const family of FAMILIES) {
    if (isThere(family, TABLE)) {
      await must(['nft', 'delete', 'table', family, TABLE], '', run)
      done.push(`nft table ${family} ${TABLE}`)
    }
    if (has(`${family}tables-nft-save`))
      for (const table of TABLES)
        if (isThere(family, table)) done.push(...(await removeChains(`${family}tables-nft`, table, run)))
    for (const table of legacyTables(family)) done.push(...(await removeChains(`${family}tables-legacy`, table, run)))
  }
  if (isLink(IPVS_LINK, 'host')) {
    await must(['ip', 'link', 'delete', 'dev', IPVS_LINK], '', run)
    done.push(`link ${IPVS_LINK}`)
  }
  return done
}

// The tables of the older iptables that are in use. To ask for another one would make it.
function legacyTables(family: (typeof FAMILIES)[number]): (typeof TABLES)[number][] {
  const names = readText(`/proc/net/${family}_tables_names`)?.split('\n') ?? []
  return has(`${family}tables-legacy-save`) ? TABLES.filter((table) => names.includes(table)) : []
}

function saved(tool: string, table: string, run: Run): Promise<string> {
  return listed([`${tool}-save`, '-t', table], run)
}

async function removeChains(tool: string, table: string, run: Run): Promise<string[]> {
  const { chains, lines } = removalOf((await saved(tool, table, run)).split('\n'))
  if (chains === 0) return []
  await must([`${tool}-restore`, '--noflush', '--wait'], [`*${table}`, ...lines, 'COMMIT', ''].join('\n'), run)
  return [`${tool} ${table}: ${chains} chains of kube-proxy`]
}

// The lines that remove kube-proxy's chains from a saved table, and the jumps of built-in chains to them. A chain that
// another program's chain uses stays, with all that it uses, such as KUBE-MARK-MASQ for portmap's externalSetMarkChain.
function removalOf(lines: readonly string[]): { readonly chains: number; readonly lines: readonly string[] } {
  // A chain of a program has the policy `-`.
  const policies = new Map<string, string>()
  const jumps: { readonly line: string; readonly from: string; readonly to: string }[] = []
  for (const line of lines) {
    const [, chain, policy = ''] = /^:(\S+) (\S+)/.exec(line) ?? []
    if (chain !== undefined) policies.set(chain, policy)
    const [, from, to = ''] = /^-A (\S+) (?:.* )?-[jg] (\S+)/.exec(line) ?? []
    if (from !== undefined && OWN.test(to)) jumps.push({ line, from, to })
  }
  const kept = new Set<string>()
  const keep = (chain: string) => {
    if (kept.has(chain)) return
    kept.add(chain)
    for (const { from, to } of jumps) if (from === chain) keep(to)
  }
  for (const { from, to } of jumps) if (policies.get(from) === '-' && !OWN.test(from)) keep(to)
  const gone = [...policies.keys()].filter((chain) => OWN.test(chain) && !kept.has(chain))
  const unlinked = jumps
    .filter(({ from, to }) => policies.get(from) !== '-' && !kept.has(to))
    .map(({ line }) => line.replace('-A ', '-D '))
  return {
    chains: gone.length,
    lines: [...unlinked, ...gone.map((one) => `-F ${one}`), ...gone.map((one) => `-X ${one}`)],
  }
}

async function must(argv: readonly string[], stdin: string, run: Run): Promise<void> {
  const { status, stderr } = await run(argv, stdin)
  if (status !== 0) throw new ExecError(argv, undefined, stderr.trim() || `ended with status ${status}`)
}
