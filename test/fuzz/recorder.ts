import type { LinkAddress } from '../../lib/os/link-addresses.ts'
import type { SeenLink } from '../../lib/os/links.ts'
import type { Output, Run } from '../../lib/os/run.ts'
import { ExecError } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { parse } from '../../lib/text/values.ts'
import { type Given, strangeIn } from './grammar.ts'

const POD_KINDS = /^(macvlan|ipvlan|vlan|dummy|tun)$/

/** What goes wrong with the tool that is called as number `at`, counted from 0; `on`: with every one after it, too. */
export interface Fault {
  readonly at: number
  readonly on: boolean
  readonly kind: (typeof FAULTS)[number]
}
/**
 * The last line refused by the kernel; the tool does not know an argument; it prints nonsense; it cannot be started; it
 * dies.
 */
export const FAULTS = ['line', 'usage', 'garbage', 'start', 'killed'] as const

interface Row {
  readonly ifname: string
  readonly kind: string
  readonly peer?: readonly [ns: string, name: string]
  readonly addr_info: {
    readonly local: string
    readonly prefixlen: number
    readonly family: string
    readonly scope: string
  }[]
  alias?: string
  group?: string
}

/**
 * A kernel of text: takes what plumb says to tools, starts nothing, answers as the tools would, and keeps links,
 * addresses and elements.
 */
export class Recorder {
  /** What was said that is not in plumb's grammar. */
  readonly strange: string[] = []
  /** How many tools were called since `arm`. */
  calls = 0
  readonly #spaces = new Map<string, Map<string, Row>>()
  /** Of each `SET KEY` what stands behind the key: comment and value. */
  #elements = new Map<string, string>()
  readonly #chains = new Map<string, string[]>()
  #loaded = false
  #given: () => Given = () => new Set()
  #fault: Fault | undefined

  /**
   * `squatter` is a link on the host that is no bridge; `pod` a namespace in which another plugin made eth0, with its
   * other end on the host.
   */
  constructor(squatter?: string, pod?: string) {
    if (pod !== undefined)
      for (const [ns, ifname] of [
        [pod, 'eth0'],
        ['host', 'veth0123abcd'],
      ] as const)
        this.#space(ns).set(ifname, { ifname, kind: 'veth', addr_info: [] })
    if (squatter !== undefined) this.#space('host').set(squatter, { ifname: squatter, kind: 'vxlan', addr_info: [] })
  }

  /** Before a call of plumb: what it was given, and what is to go wrong. */
  arm(given: () => Given, fault?: Fault): void {
    this.calls = 0
    let known: Given | undefined
    this.#given = () => {
      known ??= given()
      return known
    }
    this.#fault = fault
  }

  /**
   * `namespace/name` of every link that belongs to an attachment: the pair that holds a bridge's gateway in a VLAN has
   * both its ends on the host.
   */
  links(): string[] {
    return [...this.#spaces]
      .flatMap(([ns, all]) =>
        [...all.values()].flatMap(({ ifname, kind, peer }) =>
          (peer && peer[0] !== ns) || POD_KINDS.test(kind) || kind === 'ifb' ? `${ns}/${ifname}` : [],
        ),
      )
      .sort()
  }

  /** The elements that lead a host port to its owner. */
  ports(): string[] {
    return [...this.#elements.keys()]
      .filter((key) => /^(ports|conditional|snat|masqall|pods|admin|isolating|together|apart)/.test(key))
      .sort()
  }

  readonly run: Run = Object.assign(this.#run.bind(this), {
    link: (name: string, ns: string) => this.#space(ns).has(name),
    seen: (name: string, ns: string) => this.#seen(name, ns),
    held: (index: number, family?: 4 | 6) => this.#held(index, family),
  })

  async #run(argv: readonly string[], stdin: string, ns = 'host'): Promise<Output> {
    this.strange.push(...strangeIn(argv, stdin, ns, this.#given()))
    const number = this.calls++
    const fault =
      this.#fault && (this.#fault.on ? number >= this.#fault.at : number === this.#fault.at)
        ? this.#fault.kind
        : undefined
    if (fault === 'start') throw new ExecError(argv, undefined, 'cannot be started: EACCES: permission denied')
    if (fault === 'killed') return { status: -1, stdout: '', stderr: '' }
    if (fault === 'usage') return failure('Usage: ip [ OPTIONS ] OBJECT { COMMAND | help }\n')
    const done = this.#answer(argv, stdin, ns, fault === 'line' ? stdin.trimEnd().split('\n').length - 1 : undefined)
    return fault === 'garbage' ? { ...done, stdout: '[\0\uFFFD}{ garbage\n[1, 2' } : done
  }

  #seen(name: string, ns: string): SeenLink | undefined {
    const here = this.#space(ns)
    const row = here.get(name)
    return (
      row && {
        index: [...here.keys()].indexOf(name) + 1,
        mtu: 1500,
        mac: parse.mac('02:00:00:00:00:07'),
        kind: row.kind,
        alias: row.alias ?? '',
        isEthernet: name !== 'lo',
        isUp: true,
        promisc: false,
        locked: true,
      }
    )
  }

  #held(index: number, family?: 4 | 6): LinkAddress[] {
    const row = [...this.#space('host').values()][index - 1]
    return (row?.addr_info ?? [])
      .filter((one) => family === undefined || one.family === (family === 4 ? 'inet' : 'inet6'))
      .map(({ local, prefixlen }) => ({ cidr: `${local}/${prefixlen}` as Cidr, scope: 0 }))
  }

  #space(ns: string): Map<string, Row> {
    const found =
      this.#spaces.get(ns) ?? new Map<string, Row>([['lo', { ifname: 'lo', kind: 'loopback', addr_info: [...LOCAL] }]])
    this.#spaces.set(ns, found)
    return found
  }

  #answer(argv: readonly string[], stdin: string, ns: string, failing?: number): Output {
    const [tool] = argv
    if (tool?.includes('tables'))
      return failing === undefined ? success('') : failure('iptables-restore v1.8.9 (nf_tables): line 2 failed\n')
    if (tool === 'conntrack')
      return failing === undefined
        ? success(argv.includes('-L') ? flow(argv) : '')
        : failure('conntrack v1.4.7 (conntrack-tools): Operation failed\n')
    if (argv.at(-1) === '-')
      return tool === 'nft'
        ? this.#nft(stdin, failing !== undefined)
        : this.#batch(stdin, ns, argv.includes('-force'), failing)
    if (tool === 'nft') return success('')
    if (!argv.includes('dev')) return success(`${show([...this.#space(ns).values()])}\n`)
    return this.#batch(`${argv.includes('link') ? 'link delete' : 'addr show'} dev ${argv.at(-1)}`, ns, false)
  }

  #batch(stdin: string, ns: string, force: boolean, failing?: number): Output {
    let [stdout, stderr] = ['', '']
    for (const [i, text] of stdin.trimEnd().split('\n').entries()) {
      const { said, failed } =
        i === failing ? { failed: 'RTNETLINK answers: Operation not permitted' } : this.#line(text, ns)
      if (said) stdout += `${said}\n`
      if (failed) stderr += `${failed}\nCommand failed -:${i + 1}\n`
      if (failed && !force) break
    }
    return { status: stderr ? 1 : 0, stdout, stderr }
  }

  /** One line of a batch: what is printed, and why it failed. */
  #line(text: string, ns: string): { said?: string; failed: string } {
    const words = text.split(' ')
    if (words[0] === 'tuntap')
      return { failed: this.#add(['link', 'add', 'name', words[5] as string, 'type', 'tun'], ns) }
    const [, moved, called, to] = /^link set dev (\S+) .*?\bname (\S+).*? netns (\S+)/.exec(text) ?? []
    // A device of the node: the real one stays where it is, which is what the next call finds.
    if (moved && called && to) {
      if (!this.#space(ns).has(moved)) return { failed: `Cannot find device "${moved}"` }
      this.#space(to).set(called, { ifname: called, kind: 'lent', addr_info: [] })
      return { failed: '' }
    }
    if (words[0] === 'qdisc' || words[0] === 'filter')
      return { ...(words[1] === 'show' && { said: '[ ]' }), failed: '' }
    if (words[0] === 'link') return { failed: words[1] === 'add' ? this.#add(words, ns) : this.#change(words, ns) }
    if (words[0] === 'rule') return { failed: '' }
    const dev = words[words.lastIndexOf('dev') + 1] ?? ''
    const row = this.#space(ns).get(dev)
    if (words[1] === 'show' && words[0] !== 'addr') return { said: '[ ]', failed: '' }
    if (!row) return { failed: words[1] === 'show' ? `Device "${dev}" does not exist.` : `Cannot find device "${dev}"` }
    if (words[1] === 'show') return { said: show([row]), failed: '' }
    const [local = '', length] = (words[2] ?? '').split('/')
    if (words[0] === 'addr' && words[1] === 'replace')
      row.addr_info.push({
        family: local.includes(':') ? 'inet6' : 'inet',
        local,
        prefixlen: Number(length),
        scope: 'global',
      })
    return { failed: '' }
  }

  #add(words: readonly string[], ns: string): string {
    const type = words.lastIndexOf('type')
    const name = words[words.indexOf('name') + 1] as string
    const isPods = POD_KINDS.test(words[type + 1] ?? '')
    const here = this.#space((isPods && words[words.indexOf('netns') + 1 || words.length]) || ns)
    const after = (word: string, from = 0) =>
      words.indexOf(word, from) < 0 ? undefined : (words[words.indexOf(word, from) + 1] as string)
    const kind = words[type + 1] as string
    const master = after('master')
    const peer = kind === 'veth' ? ([after('netns') ?? ns, after('name', type) as string] as const) : undefined
    if (here.has(name) || (peer && this.#space(peer[0]).has(peer[1]))) return 'RTNETLINK answers: File exists'
    if (master !== undefined && here.get(master)?.kind !== 'bridge')
      return here.has(master)
        ? 'RTNETLINK answers: Operation not supported'
        : 'Error: argument "x" is wrong: Device does not exist'
    here.set(name, { ifname: name, kind, addr_info: [], ...(peer && { peer }) })
    if (peer) this.#space(peer[0]).set(peer[1], { ifname: peer[1], kind, addr_info: [], peer: [ns, name] })
    return ''
  }

  #change(words: readonly string[], ns: string): string {
    const [, verb, what, name = ''] = words
    if (what === 'group') return this.#deleteGroup(name, ns)
    const alias = words[words.indexOf('alias') + 1]
    const to = words.at(-2) === 'name' ? words.at(-1) : undefined
    const here = this.#space(ns)
    const row = here.get(name)
    if (!row) return `Cannot find device "${name}"`
    if (to !== undefined && here.has(to)) return 'RTNETLINK answers: File exists'
    if (verb === 'set' && words.at(-2) === 'group') row.group = words.at(-1) as string
    if (verb === 'set' && alias?.startsWith('plumb/')) row.alias = alias
    if (to !== undefined) {
      here.delete(name)
      here.set(to, { ...row, ifname: to })
    }
    if (verb !== 'delete') return ''
    here.delete(name)
    if (row.peer) this.#space(row.peer[0]).delete(row.peer[1])
    return ''
  }

  #deleteGroup(group: string, ns: string): string {
    const all = [...this.#space(ns).values()].filter((row) => row.group === group)
    for (const { ifname } of all) this.#change(['link', 'delete', 'dev', ifname], ns)
    return all.length > 0 ? '' : 'RTNETLINK answers: No such device'
  }

  #nft(stdin: string, failing: boolean): Output {
    if (failing) return failure('/dev/stdin:1:1-3: Error: Could not process rule: Operation not permitted\n')
    if (/^table inet plumb/m.test(stdin)) this.#loaded = true
    if (!this.#loaded) return failure('/dev/stdin:1:18-22: Error: No such file or directory\n')
    const now = new Map(this.#elements)
    let stdout = ''
    for (const [i, text] of stdin.split('\n').entries()) {
      const [, verb, set, key, rest = ''] =
        /^(add|delete|get) element inet plumb (\S+) \{ (.*?)( comment .*)? \}$/.exec(text) ?? []
      const [, verbOf, chain = '', rule] =
        /^(flush|delete|list|add)(?: rule)?(?: chain)? inet plumb ((?:cond\S+|[A-Za-z_.-]*[A-Z_.-][\w.-]*))(?: (.*))?$/.exec(
          text,
        ) ?? []
      const isThere = verb === undefined || verb === 'add' || now.has(`${set} ${key}`)
      if (!isThere || (verbOf && verbOf !== 'add' && !this.#chains.has(chain)))
        return failure(`/dev/stdin:${i + 1}:1-9: Error: Could not process rule: No such file or directory\n`)
      if (verb === 'add') now.set(`${set} ${key}`, rest)
      if (verb === 'delete') now.delete(`${set} ${key}`)
      if (verb === 'get')
        stdout += `table inet plumb {\n\tmap ${set} {\n\t\telements = { ${key}${now.get(`${set} ${key}`)} }\n\t}\n}\n`
      if (verbOf) stdout += this.#chain(verbOf, chain, rule)
    }
    this.#elements = now
    return success(stdout)
  }

  /** What is printed of it. */
  #chain(verb: string, name: string, rule?: string): string {
    if (verb === 'list')
      return `table inet plumb {\n\tchain ${name} {\n${(this.#chains.get(name) ?? []).map((one) => `\t\t${one}\n`).join('')}\t}\n}\n`
    if (verb === 'delete') this.#chains.delete(name)
    else this.#chains.set(name, rule === undefined ? [] : [...(this.#chains.get(name) ?? []), rule])
    return ''
  }
}

// A UDP connection to a port of the node, as conntrack lists it.
function flow(argv: readonly string[]): string {
  const port = argv.includes('--orig-port-dst') ? argv.at(-1) : '8080'
  const [to, from, pod] = argv.includes('ipv6')
    ? ['::1', '2001:db8::9', 'fd00:7::7']
    : ['127.0.0.1', '192.0.2.9', '10.7.0.7']
  return `udp      17 29 src=${from} dst=${to} sport=4000 dport=${port} src=${pod} dst=${from} sport=80 dport=4000 [ASSURED] mark=0 use=1\n`
}

const LOCAL = [
  { family: 'inet', local: '127.0.0.1', prefixlen: 8, scope: 'host' },
  { family: 'inet6', local: '::1', prefixlen: 128, scope: 'host' },
]

// As `ip -d -j addr show` prints it, on one line.
function show(rows: readonly Row[]): string {
  const more = (kind: string) =>
    kind === 'loopback' ? { link_type: kind } : { link_type: 'ether', linkinfo: { info_kind: kind } }
  const seen = rows.map(({ ifname, kind, alias, addr_info }, i) => ({
    ifindex: i + 1,
    ifname,
    ...(alias && { ifalias: alias }),
    flags: ['UP'],
    mtu: 1500,
    address: '02:00:00:00:00:07',
    promiscuity: 0,
    ...more(kind),
    addr_info,
  }))
  return JSON.stringify(seen)
}

function success(stdout: string): Output {
  return { status: 0, stdout, stderr: '' }
}

function failure(stderr: string): Output {
  return { status: 1, stdout: '', stderr }
}
