import { encodeValue } from '../../agent/lease/lease.ts'
import type { Cluster as Etcd } from './etcd.ts'
import type { Namespace } from './harness.ts'
import { random } from './seed.ts'
import { draft } from './suites/leases.ts'

const PREFIX = '/coreos.com/network/subnets/'
/** Leases of nodes that are not there: 10.244.101.0/24 and so on. */
const [FIRST, COUNT] = [101, 40]

const begun: Going[] = []
afterEach(async () => {
  for (const one of begun.splice(0)) await one.end()
})

/** Something that goes on beside a test. */
export interface Going {
  /** Ends it, and gives how often something was done. */
  end(): Promise<number>
}

/** Adds, changes and removes leases of nodes that are not there, by turns and at random, with a pause between. */
export function churn(etcd: Etcd, backend: string, pauseMs = 20): Going {
  return going(async () => {
    const n = FIRST + below(COUNT)
    const key = `${PREFIX}10.244.${n}.0-24`
    // Of host-gw every second one changes its gateway, of vxlan its MAC too.
    if (random() < 0.3) await etcd.del(key)
    else
      await etcd.put(
        key,
        encodeValue({ ...draft('', FIRST + below(COUNT)), backend, ...(backend === 'vxlan' ? {} : { data: {} }) }),
      )
  }, pauseMs)
}

/** Takes all leases away of nodes that are not there. */
export async function withdraw(etcd: Etcd): Promise<void> {
  for (let n = FIRST; n < FIRST + COUNT; n++) await etcd.del(`${PREFIX}10.244.${n}.0-24`)
}

/** Undoes by hand what an agent made for those nodes, and makes what it has to remove. */
export function drift(ns: Namespace): Going {
  return going(async () => {
    const route = `10.244.${FIRST + below(COUNT)}`
    const by = [
      `ip route del ${route}.0/24`,
      `ip route add ${route}.0/25 via 172.30.0.2 proto 112`,
      `ip neigh del ${route}.0 dev flannel.1`,
      `ip neigh replace ${route}.0 lladdr 02:00:00:00:00:99 dev flannel.1 nud permanent`,
      'bridge fdb append 02:00:00:00:00:77 dev flannel.1 dst 172.30.0.77 self permanent',
      `bridge fdb del $(bridge fdb show dev flannel.1 | grep -v 'dst 172.30.0.2 ' | shuf -n 1 | cut -d' ' -f1) dev flannel.1`,
      'nft flush table inet $(nft list tables | grep -o "plumb_agent.*")',
    ]
    await ns.exec(['sh', '-c', by[below(by.length)] as string])
  }, 30)
}

/** What a node has for its peers, and what it has to have for the leases in etcd: one line each, in order. */
export async function compare(
  etcd: Etcd,
  ns: Namespace,
  backend: string,
  own: string,
): Promise<{ has: string; wanted: string }> {
  const kept = (await etcd.list(PREFIX)).filter(({ key }) => key !== `${PREFIX}${own.replace('/', '-')}`)
  const leases = kept.map(({ key, value }) => ({
    subnet: key.slice(PREFIX.length).replace(/-24$/, '/24'),
    ...(JSON.parse(value) as { PublicIP: string; BackendData?: { VtepMAC: string } }),
  }))
  const shown = async (line: string) => (await ns.exec(line.split(' '))).stdout.split('\n').filter(Boolean)
  const routes = (await shown('ip route show proto 112')).map((row) =>
    row.replace(/ (nhid \d+|proto 112|scope link)/g, '').trim(),
  )
  if (backend !== 'vxlan')
    return {
      has: text(routes),
      wanted: text(leases.map(({ subnet, PublicIP }) => `${subnet} via ${PublicIP} dev eth0`)),
    }
  const neighbours = (await shown('ip neigh show dev flannel.1 nud permanent')).map((row) =>
    row.replace(' proto 112', '').trim(),
  )
  const forwarding = (await shown('bridge fdb show dev flannel.1'))
    .filter((row) => row.includes('permanent'))
    .map((row) => row.trim())
  const address = (subnet: string) => subnet.replace('/24', '')
  const unique = new Set(
    leases.map(({ PublicIP, BackendData }) => `${BackendData?.VtepMAC} dst ${PublicIP} self permanent`),
  )
  return {
    has: text([...routes, ...neighbours, ...forwarding]),
    wanted: text([
      ...leases.flatMap(({ subnet, BackendData }) => [
        `${subnet} via ${address(subnet)} dev flannel.1 onlink`,
        `${address(subnet)} lladdr ${BackendData?.VtepMAC} PERMANENT`,
      ]),
      ...unique,
    ]),
  }
}

/** Does something again and again, with a pause between, until it is ended or the test is. */
export function going(work: () => Promise<void>, pauseMs: number): Going {
  let [done, isEnding] = [0, false]
  const { promise: ending, resolve: stop } = Promise.withResolvers<void>()
  const loop = (async () => {
    // What a test that failed took away is none of its business.
    for (; !isEnding; done++)
      await work().then(
        () => Promise.race([Bun.sleep(pauseMs), ending]),
        () => Bun.sleep(100),
      )
  })()
  const made: Going = {
    async end() {
      isEnding = true
      stop()
      await loop
      return done
    },
  }
  begun.push(made)
  return made
}

function below(count: number): number {
  return Math.floor(random() * count)
}

function text(lines: readonly string[]): string {
  return [...lines].sort().join('\n')
}
