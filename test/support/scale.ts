import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openBackend } from '../../agent/backend/open.ts'
import type { Uplink } from '../../agent/backend/uplink.ts'
import { Converger } from '../../agent/kernel/converge.ts'
import { ipEvent } from '../../agent/kernel/events.ts'
import { hasNexthops } from '../../agent/kernel/nexthops.ts'
import { run } from '../../agent/kernel/run.ts'
import type { Lease } from '../../agent/lease/lease.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { parse } from '../../lib/text/values.ts'

/**
 * What `bun test/support/scale.ts BACKEND COUNT` prints as JSON, run in a namespace with an eth0 of 10.200.0.1/16: CPU
 * time, in milliseconds, of the process and of its children, and wall time.
 */
export interface Scale {
  /** From nothing to all peers, `want` included. */
  readonly cold: Cost
  /** A process that finds everything there. */
  readonly restart: Cost
  /** One more peer, and a route deleted by hand, or with WireGuard a peer: the medians of several. */
  readonly more: Cost
  readonly repair: Cost
  /** How many resources there were. */
  readonly resources: number
}
interface Cost {
  readonly agent: number
  readonly children: number
  readonly wall: number
}

const UPLINK: Uplink = {
  name: parse.ifname('eth0'),
  index: 2,
  mtu: 1500,
  tunnel: { v4: '10.200.0.1' as Ip },
  advertise: { v4: '10.200.0.1' as Ip },
  routes: [{ dst: '10.200.0.0/16' as Cidr, dev: parse.ifname('eth0'), gateway: false }],
}

if (import.meta.main) {
  const [type = '', count = ''] = process.argv.slice(2)
  process.stdout.write(`${JSON.stringify(await measure(type, Number(count)))}\n`)
}

async function measure(type: string, count: number): Promise<Scale> {
  const backend = await openBackend(type)
  const [given, stateDir] = [backend.conf({}), mkdtempSync(join(tmpdir(), 'scale-'))]
  const conf = backend.equip?.(given, { stateDir, node: 'node-1' }) ?? given
  rmSync(stateDir, { recursive: true })
  const facts = {
    nexthops: await hasNexthops(run),
    instance: parse.network('default'),
    networks: ['10.0.0.0/9' as Cidr],
  }
  const self = { ...lease(type, 1), data: backend.announce('node-1', UPLINK, conf) }
  const scope = { instance: facts.instance, links: backend.links(conf), networks: ['10.0.0.0/9' as Cidr] }
  const peers = Array.from({ length: count }, (_, i) => lease(type, i + 2))
  let converger = new Converger(scope, run)
  // A list of its own each time, as a store gives it: a backend that sees the same list does nothing.
  const want = () => backend.want(self, [...peers], UPLINK, conf, facts).resources
  const step = async () => {
    const { failed } = await converger.step(want())
    if (failed.length > 0) throw new Error(failed.join('\n'))
  }
  const cold = await cost(step)
  const resources = want().length
  const more: Cost[] = []
  const repair: Cost[] = []
  for (let i = 0; i < 9; i++) {
    peers.push(lease(type, count + 10 + i))
    more.push(await cost(step))
    await undo(type, i * 7 + 2, converger)
    repair.push(await cost(step))
  }
  converger = new Converger(scope, run)
  return { cold, restart: await cost(step), more: median(more), repair: median(repair), resources }
}

// Does by hand what the next step has to repair.
async function undo(type: string, n: number, converger: Converger): Promise<void> {
  if (type === 'wireguard') {
    await run(['wg', 'set', 'flannel-wg', 'peer', keyOf(n), 'remove'], '')
    converger.invalidate('wgdevice', 'wgpeer')
    return
  }
  const dst = lease(type, n).subnets.v4 as string
  await run(['ip', 'route', 'delete', dst], '')
  const event = ipEvent(`Deleted ${dst} dev eth0 proto 112 `)
  if (!event || converger.note(event) !== 0) throw new Error(`the route to ${dst} was not missed`)
}

/** A key that no other node has. */
function keyOf(n: number): string {
  const bytes = Buffer.alloc(32, 1)
  bytes.writeUInt32BE(n)
  return bytes.toString('base64')
}

function lease(type: string, n: number): Lease {
  const [high, low] = [n >> 8, n & 255]
  const hex = (part: number) => part.toString(16).padStart(2, '0')
  const vtep = { VNI: 1, VtepMAC: `02:00:00:00:${hex(high)}:${hex(low)}` }
  return {
    node: `node-${n}`,
    subnets: { v4: `10.${high}.${low}.0/24` as Cidr },
    ips: { v4: `10.200.${high}.${low}` as Ip },
    backend: type,
    data: { v4: type === 'wireguard' ? { PublicKey: keyOf(n), Port: 51820 } : vtep },
  }
}

async function cost(work: () => Promise<void>): Promise<Cost> {
  const [agent, children, wall] = [process.cpuUsage(), reaped(), performance.now()]
  await work()
  const { user, system } = process.cpuUsage(agent)
  return {
    agent: Math.round((user + system) / 1000),
    children: reaped() - children,
    wall: Math.round(performance.now() - wall),
  }
}

// proc(5): cutime and cstime, in hundredths of a second.
function reaped(): number {
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[13]) + Number(fields[14])) * 10
}

function median(all: Cost[]): Cost {
  const of = (key: keyof Cost) => all.map((one) => one[key]).sort((a, b) => a - b)[all.length >> 1] as number
  return { agent: of('agent'), children: of('children'), wall: of('wall') }
}
