import { writeAtomic } from '../../lib/os/files.ts'
import { attach, UNDERLAY } from './cluster.ts'
import { PLACES } from './places.ts'
import { type Running, startLogged, until } from './running.ts'
import { names } from './traces.ts'
import type { StoreName } from './wish.ts'

/** The store of the agents' leases, as the demo sees the store from outside. */
export interface Store {
  /** The options of `plumb agent` for this store. */
  readonly options: readonly string[]
  /**
   * The place of the network's configuration, and the beginning of the names of leases. The file store has a file and a
   * folder, etcd has keys.
   */
  readonly confAt: string
  readonly leasesAt: string
  /** Makes the store and returns its address. Throws Error. */
  begin(): Promise<string>
  /** Stops the server until `goOn`. Requests get no answer and no error. */
  hang?(): Promise<string>
  goOn?(): Promise<string>
  /** Writes the network's configuration, as an admin does. Throws Error. */
  configure(conf: object): Promise<void>
  /** Returns the names of the leases, and of the other records that the agents keep beside them. Throws Error. */
  leases(): Promise<{ readonly leases: readonly string[]; readonly others: readonly string[] }>
}

/** Returns the store of this kind. */
export function storeOf(name: StoreName): Store {
  return name === 'file' ? file : etcd()
}

const file: Store = {
  options: ['--store', 'file', '--file-store-dir', PLACES.store],
  confAt: `${PLACES.store}/config`,
  leasesAt: `${PLACES.store}/subnets/`,
  begin: async () => `${PLACES.store}, which all of them see`,
  configure: async (conf) => writeAtomic(`${PLACES.store}/config`, JSON.stringify(conf), { durable: false }),
  leases: async () => ({ leases: names(`${PLACES.store}/subnets`), others: names(`${PLACES.store}/nodes`) }),
}

const URL = `http://${UNDERLAY.v4(UNDERLAY.etcd)}:2379`
const PREFIX = '/coreos.com/network'
const LIMIT_MS = 10_000
// A single etcd server does not need a long wait for other members before it leads.
const FLAGS = [
  '--data-dir=/run/etcd',
  `--listen-client-urls=${URL}`,
  `--advertise-client-urls=${URL}`,
  '--listen-peer-urls=http://127.0.0.1:2380',
  '--heartbeat-interval=10',
  '--election-timeout=100',
  '--log-level=error',
]

function etcd(): Store {
  let server: Running | undefined
  return {
    options: ['--store', 'etcd', '--etcd-endpoints', URL],
    confAt: `${PREFIX}/config`,
    leasesAt: `${PREFIX}/subnets/`,
    async begin() {
      await attach('etcd', UNDERLAY.etcd)
      server = startLogged(['etcd', ...FLAGS], { ns: 'etcd' })
      await answers(server)
      return `${URL}, on a host of its own`
    },
    async hang() {
      server?.child.kill('SIGSTOP')
      // SIGSTOP does not stop all threads at once. Each thread stops when it runs next.
      await until(
        () => isSilent(1000),
        LIMIT_MS,
        () => 'etcd was stopped, and answers',
      )
      return 'SIGSTOP: it takes requests, and answers none'
    },
    async goOn() {
      server?.child.kill('SIGCONT')
      if (server) await answers(server)
      return 'SIGCONT: it answers'
    },
    configure: async (conf) =>
      void (await ask('kv/put', { key: b64(`${PREFIX}/config`), value: b64(JSON.stringify(conf)) })),
    async leases() {
      const { kvs = [] } = await ask('kv/range', { key: b64(`${PREFIX}/`), range_end: b64(`${PREFIX}0`) })
      const keys = kvs.map(({ key }) => Buffer.from(key, 'base64').toString().slice(`${PREFIX}/`.length))
      return {
        leases: keys.flatMap((key) => (key.startsWith('subnets/') ? [key.slice('subnets/'.length)] : [])),
        others: keys.filter((key) => !/^(subnets\/|config$)/.test(key)),
      }
    },
  }
}

async function answers({ child, said }: Running): Promise<void> {
  await until(
    async () => {
      if (child.exitCode !== null) throw new Error(`etcd ended with ${child.exitCode}: ${said()}`)
      return ask('kv/range', { key: b64('/') }).catch(() => undefined)
    },
    LIMIT_MS,
    () => `etcd does not answer on ${URL}${said() && `: ${said()}`}`,
  )
}

function isSilent(ms: number): Promise<true | undefined> {
  return ask('kv/range', { key: b64('/') }, ms).then(
    () => undefined,
    () => true,
  )
}

// Uses etcd's own JSON gateway. So the demo does not look through plumb's client.
async function ask(
  path: string,
  body: object,
  ms = 2000,
): Promise<{ readonly kvs?: readonly { readonly key: string }[] }> {
  const answer = await fetch(`${URL}/v3/${path}`, {
    method: 'POST',
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(ms),
  }).catch((cause: Error) => {
    throw new Error(`etcd does not answer ${path}: ${cause.message}`, { cause })
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`etcd answered ${answer.status} to ${path}: ${text}`)
  return JSON.parse(text)
}

function b64(text: string): string {
  return Buffer.from(text).toString('base64')
}
