import { linksNow } from '../../lib/os/links.ts'
import { chainUses, flowtableDevices, isInForce, isThere } from '../../lib/os/nftables.ts'
import type { Run } from '../../lib/os/run.ts'
import { isSix } from '../../lib/text/cidr.ts'
import { ExecError } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { Elements } from '../kernel/elements.ts'
import { additionsOf, CHAIN, FLOWTABLE, fixed, NAME, REMOVE, rules, SHAPES, TABLE } from './table.ts'
import type { Ways } from './ways.ts'

const TOOL = ['nft', '-f', '-']

/** The flowtable in the kernel. It stays when the agent ends, and pods that begin then go by the rules. */
export class FastPath {
  readonly #elements = new Elements(TABLE, SHAPES)
  readonly #networks: readonly Cidr[]
  readonly #run: Run
  /** The devices that the kernel's flowtable has. Undefined when this run has not made it. */
  #devices: ReadonlySet<string> | undefined
  /** The networks of IPv6 that its rules leave out. */
  #narrow: readonly Cidr[] = []
  /** The links of the elements that the kernel has, by element. */
  #linkOf = new Map<string, string>()
  #last: Promise<unknown> = Promise.resolve()
  #renewals = 0
  /** A renewal that has not begun. */
  #renewal: Promise<void> | undefined

  /** `networks` are those of all pods. */
  constructor(networks: readonly Cidr[], run: Run) {
    this.#networks = networks
    this.#run = run
  }

  /** The number of links in the flowtable. 0 before it is made. */
  get size(): number {
    return this.#devices?.size ?? 0
  }

  /** How often offloaded connections were sent back to the rules, since the start of the agent. */
  get renewals(): number {
    return this.#renewals
  }

  /** The next step compares the table with the kernel. */
  invalidate(): void {
    this.#elements.invalidate()
  }

  /** Makes the kernel equal to these ways, and gives what it had to repair. `existing` are all links. Throws ExecError. */
  keep(ways: Ways, existing: ReadonlySet<string>): Promise<readonly string[]> {
    return this.#inTurn(() => this.#keep(ways, existing))
  }

  /**
   * Sends all offloaded connections back to the rules, in one transaction. Those that the rules allow are offloaded again
   * by their next packets. Call it after a change that ends connections. Throws ExecError.
   */
  renew(): Promise<void> {
    // One renewal serves all that ask for it before it begins.
    this.#renewal ??= this.#inTurn(() => {
      this.#renewal = undefined
      return this.#renew()
    })
    return this.#renewal
  }

  /** Removes the table. Throws ExecError. */
  remove(): Promise<void> {
    return this.#inTurn(async () => {
      if (isThere('inet', TABLE)) await this.#load([REMOVE])
    })
  }

  // One change at a time: a renewal that is asked for while another change goes on has to come after it.
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#last.then(work, work)
    this.#last = next.catch(() => {})
    return next
  }

  async #keep(ways: Ways, existing: ReadonlySet<string>): Promise<readonly string[]> {
    const before = this.#devices
    const pods = [...ways.pods, ...ways.unfinished.filter(({ link }) => before?.has(link))]
    const wanted = new Set<string>([...ways.outer, ...pods.map(({ link }) => link)])
    const isGone = this.#want({ ...ways, pods }, existing)
    const foreign = before && this.#elements.mayDiffer ? this.#foreign(existing) : undefined
    const isNarrower = `${ways.narrow}` !== `${this.#narrow}`
    this.#narrow = ways.narrow
    const isExtra = [...(before ?? [])].some((one) => !wanted.has(one) && existing.has(one))
    if (!before || foreign !== undefined || isExtra || isGone || isNarrower) {
      await this.#make([...wanted])
      if (before) this.#renewals++
      return foreign === undefined ? [] : [foreign]
    }
    const added = [...wanted].filter((one) => !before.has(one))
    try {
      const { repaired } = await this.#elements.step(this.#run, { before: additionsOf(added) })
      this.#devices = wanted
      return repaired
    } catch {
      // A kernel before 5.8 takes a whole flowtable alone. A link that has just gone is refused here, too.
      await this.#make([...wanted])
      return []
    }
  }

  // Sets the wanted elements. True when one goes whose link is still there: an address left its pod.
  #want({ outer, pods, bridges }: Ways, existing: ReadonlySet<string>): boolean {
    const wanted = new Map<string, Map<string, string>>(Object.keys(SHAPES).map((set) => [set, new Map()]))
    const put = (set: string, key: string, link: string) => wanted.get(set)?.set(key, link)
    for (const link of outer) put('outer', `"${link}"`, link)
    for (const bridge of bridges) put('bridges', `"${bridge}" . "${bridge}"`, bridge)
    for (const { link, entrance, addresses } of pods)
      for (const ip of addresses) put(isSix(ip) ? 'pods6' : 'pods4', `"${entrance}" . ${ip}`, link)
    const links = new Map<string, string>()
    let isGone = false
    for (const [set, keys] of wanted) {
      for (const key of [...this.#elements.wanted(set).keys()])
        if (!keys.has(key)) {
          this.#elements.remove(set, key)
          isGone ||= existing.has(this.#linkOf.get(`${set} ${key}`) ?? '')
        }
      for (const [key, link] of keys) {
        this.#elements.put(set, key)
        links.set(`${set} ${key}`, link)
        // The address is another pod's now.
        const before = this.#linkOf.get(`${set} ${key}`)
        isGone ||= before !== undefined && before !== link
      }
    }
    this.#linkOf = links
    return isGone
  }

  // What is not as this run has made it. The kernel itself takes out a link that goes.
  #foreign(existing: ReadonlySet<string>): string | undefined {
    const title = `nft table ${TABLE}`
    if (!isInForce('inet', TABLE)) return title
    if (chainUses('inet', TABLE).get(CHAIN) !== rules(this.#networks, this.#narrow).length)
      return `nft chain ${TABLE} ${CHAIN}`
    const found = flowtableDevices('inet', TABLE, FLOWTABLE)
    const missing = [...(this.#devices ?? [])].some((one) => existing.has(one) && found?.includes(one) !== true)
    return missing || found?.some((one) => this.#devices?.has(one) !== true) ? `nft flowtable ${FLOWTABLE}` : undefined
  }

  async #renew(): Promise<void> {
    // The table of an earlier run may have connections, too. The next step makes it again.
    if (this.#devices === undefined && !isThere('inet', TABLE)) return
    try {
      if (this.#devices === undefined) await this.#load([REMOVE])
      else await this.#make(linksNow().flatMap(({ name }) => (this.#devices?.has(name) ? [name] : [])))
      this.#renewals++
    } catch (cause) {
      // Without a table all packets meet the rules.
      await this.#load([REMOVE]).catch(() => {
        throw cause
      })
    }
  }

  async #make(devices: readonly string[]): Promise<void> {
    this.#devices = undefined
    this.#elements.forget()
    await this.#elements.step(this.#run, { before: fixed(devices, this.#networks, this.#narrow) })
    this.#devices = new Set(devices)
  }

  async #load(lines: readonly string[]): Promise<void> {
    this.#devices = undefined
    const { status, stderr } = await this.#run(TOOL, lines.join('\n'))
    if (status !== 0)
      throw new ExecError(TOOL, `table ${NAME}`, stderr.split('\n', 1)[0] || `ended with status ${status}`)
  }
}

/**
 * Why this kernel has no flowtable. Undefined when it has: it is tried on the loopback device, and nothing is left.
 * Throws ExecError when it could not be found out.
 */
export async function whyWithout(run: Run): Promise<string | undefined> {
  const name = 'inet plumb_trial'
  const flowtable = `flowtable ${FLOWTABLE} { hook ingress priority filter; devices = { lo }; }`
  const chain = `chain ${CHAIN} { type filter hook forward priority filter; flow add @${FLOWTABLE}; }`
  const lines = [`table ${name} {`, flowtable, chain, '}']
  const argv = ['nft', '--check', '--file', '-']
  const { status, stderr } = await run(argv, `${lines.join('\n')}\n`)
  if (status === 0) return undefined
  const [said = ''] = stderr.split('\n', 1)
  if (/No such file or directory|Operation not supported/.test(said)) return said
  throw new ExecError(argv, 'a flowtable', said || `ended with status ${status}`)
}
