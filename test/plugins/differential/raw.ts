import type { Namespace, Row } from '../../support/harness.ts'

/** What a namespace holds, as the tools tell it. */
export interface Raw {
  readonly links: readonly Row[]
  readonly routes: readonly Row[]
  readonly rules: readonly Row[]
  readonly neighbours: readonly Row[]
  readonly fdb: readonly Row[]
  readonly vlans: readonly Row[]
  /** `nft list ruleset`, which shows what iptables made too. */
  readonly ruleset: string
  /** Below /proc/sys/net: path to value. */
  readonly sysctls: ReadonlyMap<string, string>
  /** Below /var/lib/cni and /run/cni: path to `mode text`. */
  readonly files: ReadonlyMap<string, string>
}

const MARK = '=== next'
const batch = (tool: string, ...lines: string[]) => `printf '${lines.join('\\n')}\\n' | ${tool} -d -j -batch -`
const IP = batch('ip', 'addr show', 'neigh show')
const IP4 = batch('ip -4', 'route show table all', 'rule')
const IP6 = batch('ip -6', 'route show table all', 'rule')
const BRIDGE = batch('bridge', 'fdb show', 'vlan show')
const SYSCTLS = 'grep -rs . /proc/sys/net'
const RULESET = 'nft --stateless list ruleset'
const FILES = String.raw`find /var/lib/cni /run/cni -mindepth 1 -printf '%y %m %p\n'`
const TEXTS = 'grep -rs "" /var/lib/cni /run/cni'
// Of a pod no rules and no files.
const ASKED = { pod: [IP, IP4, IP6, BRIDGE, SYSCTLS], node: [IP, IP4, IP6, BRIDGE, SYSCTLS, RULESET, FILES, TEXTS] }

/** Looks at a namespace, in one process. */
export async function look(ns: Namespace, where: 'node' | 'pod'): Promise<Raw> {
  const { stdout, stderr } = await ns.exec(['sh', '-c', ASKED[where].join(`\necho '${MARK}'\n`)])
  const [both = '', four = '', six = '', bridge = '', sysctls, ruleset = '', entries, texts] = stdout.split(`${MARK}\n`)
  const [links = [], neighbours = []] = arrays(both)
  const [routes4 = [], rules4 = []] = arrays(four)
  const [routes6 = [], rules6 = []] = arrays(six)
  const [fdb = [], vlans = []] = arrays(bridge)
  if (links.length === 0) throw new Error(`Cannot look at ${ns.name}: ${stderr}`)
  const family = (name: number, found: readonly Row[]) => found.map((row): Row => ({ family: name, ...row }))
  return {
    links,
    routes: [...family(4, routes4), ...family(6, routes6)],
    rules: [...family(4, rules4), ...family(6, rules6)],
    neighbours,
    fdb,
    vlans,
    ruleset,
    sysctls: new Map(
      rows(sysctls).flatMap((line) =>
        [/^\/proc\/sys\/net\/(.*?):(.*)$/.exec(line)].flatMap((match) =>
          match ? [[match[1] as string, match[2] as string] as const] : [],
        ),
      ),
    ),
    files: files(rows(entries), rows(texts)),
  }
}

/** The links of a namespace and their addresses alone. */
export async function lookAtLinks(ns: Namespace): Promise<readonly Row[]> {
  return ns.json('addr', 'show')
}

// One array for each line of a batch, on a line of its own; a kernel without VLANs leaves the last one open.
function arrays(text: string): Row[][] {
  return rows(text).flatMap((line) => (/^\[.*\]$/.test(line) ? [JSON.parse(line) as Row[]] : []))
}

function rows(text = ''): string[] {
  return text.split('\n').filter(Boolean)
}

function files(entries: readonly string[], texts: readonly string[]): Map<string, string> {
  const found = new Map(
    entries.map((line) => {
      const [kind, mode, path] = line.split(' ') as [string, string, string]
      return [path, `${kind} ${mode}`]
    }),
  )
  // Longest first: names may hold colons.
  const paths = [...found.keys()].sort((a, b) => b.length - a.length)
  for (const line of texts) {
    const path = paths.find((one) => line.startsWith(`${one}:`))
    if (path) found.set(path, `${found.get(path)} ${JSON.stringify(line.slice(path.length + 1))}`)
  }
  return found
}
