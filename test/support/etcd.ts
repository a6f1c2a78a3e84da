// needs: etcd
import assert from 'node:assert/strict'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { execa } from 'execa'
import { type Certificates, certificates, forFetch } from './certificates.ts'
import { type Namespace, until } from './harness.ts'
import { patient } from './patience.ts'

let serial = 0

/** A key as etcd's own JSON gateway shows it: numbers as text. */
export interface Kept {
  readonly key: string
  readonly value: string
  /** `0` is none. */
  readonly lease: string
  readonly create: string
  readonly mod: string
}
/** How a cluster is started. */
export interface Wish {
  readonly members?: 1 | 3
  /** Certificates on both sides, for clients and between members. */
  readonly tls?: boolean
  /** The password of user `flannel`, who may only read and write below /coreos.com/network/. */
  readonly password?: string
  /** Further options of etcd. */
  readonly options?: readonly string[]
}
/** What an admin does with keys. */
export interface Keyed {
  put(key: string, value: string, ttlSeconds?: number): Promise<void>
  /** Many at once, by an etcd lease that is there, or without an end. */
  putMany(pairs: readonly (readonly [key: string, value: string])[], lease?: string): Promise<void>
  /** One that lives by an etcd lease that is there. */
  putBy(key: string, value: string, lease: string): Promise<void>
  /** Everything below a key, in order. */
  list(prefix: string): Promise<Kept[]>
  del(key: string, andBelow?: boolean): Promise<void>
  /** The etcd leases there are. */
  leases(): Promise<string[]>
  /** What is left of one, in seconds; -1 when it is gone. */
  left(lease: string): Promise<number>
  compact(): Promise<void>
}
/**
 * A real etcd, each member in a network namespace of its own on one bridge; calls on it are an admin's, and never
 * plumb's own client.
 */
export interface Cluster extends Keyed {
  readonly endpoints: readonly string[]
  /** For clients, when it has TLS. */
  readonly files: Certificates
  /**
   * How often a gRPC method was called on all members that answer: `Range`, `LeaseTimeToLive`, `Watch`. The gateway's
   * own calls are among them.
   */
  calls(method: string): Promise<number>
  /** Ends a member as a power cut does. */
  kill(member?: number): Promise<void>
  start(member?: number, fresh?: boolean): Promise<void>
  freeze(member?: number): void
  thaw(member?: number): void
  /** Nothing comes through to a member any more, or nothing from the other members, and nothing says so. */
  cut(member?: number, from?: 'all' | 'members'): Promise<void>
  heal(member?: number): Promise<void>
  /** The same calls, made from a member's own namespace: a cut does not reach them. */
  within(member?: number): Keyed
  /**
   * Puts a namespace on the cluster's network, as eth0: its IPv4 address, which ends in `last`, and its IPv6 address.
   */
  attach(ns: Pick<Namespace, 'path'>, last: number): Promise<{ readonly v4: string; readonly v6: string }>
  /** Logs the admin in again: a restart has ended the session. */
  login(): Promise<void>
  addUser(name: string): Promise<void>
  /** Waits until it answers. */
  ready(): Promise<void>
  stop(): Promise<void>
}

interface Member {
  readonly name: string
  readonly ns: string
  readonly ip: string
  child?: Bun.Subprocess
}

/** Starts a cluster in the network namespace of this process, which must be a test's. The caller stops it. */
export async function startEtcd({
  members: count = 1,
  tls = false,
  password,
  options = [],
}: Wish = {}): Promise<Cluster> {
  assert.equal(process.env['PLUMB_SANDBOX'], '1', 'This test makes links: run it with `bun test/run.ts FILE`')
  const id = ++serial
  const [dir, bridge, scheme] = [mkdtempSync('/run/etcd-'), `etcd${id}`, tls ? 'https' : 'http']
  const members = Array.from(
    { length: count },
    (_, i): Member => ({ name: `m${i}`, ns: `etcd${id}-${i}`, ip: `10.123.${id}.${10 + i}` }),
  )
  await sh(
    `ip link add ${bridge} type bridge && ip address add 10.123.${id}.1/24 dev ${bridge} && ip link set ${bridge} up`,
  )
  for (const [i, { ns, ip }] of members.entries())
    await sh(
      `ip netns add ${ns}; ip link add etcd${id}p${i} master ${bridge} up type veth peer name eth0 netns ${ns}; ip -n ${ns} address add ${ip}/24 dev eth0; ip -n ${ns} link set eth0 up; ip -n ${ns} link set lo up`,
    )
  const files = tls ? await certificates(dir, members) : {}
  const base = members.map(({ ip }) => `${scheme}://${ip}:2379`)
  let token = ''
  const ask = admin(base, files, () => token)
  const control = controls(members, scheme, dir, options)
  const ready = async () => void (await until(async () => (await ask('kv/range', { key: b64('/') })) && true, 20_000))
  await Promise.all(members.map((_, i) => control.start(i)))
  await ready().catch((cause) => {
    throw new Error(`etcd does not start: ${readFileSync(`${dir}/m0.log`, 'utf8').slice(-500)}`, { cause })
  })
  async function login(): Promise<void> {
    token = ''
    token = (await until(() => ask('auth/authenticate', { name: 'root', password: 'rootpw' }), 10_000))['token']
  }
  if (password !== undefined) await protect(ask, password).then(login)
  return {
    endpoints: base,
    files,
    ...keys(ask),
    ...control,
    ready,
    login,
    addUser: async (name) => void (await ask('auth/user/add', { name, password: 'unused' })),
    within: (i = 0) => keys((path, body) => askWithin(members[i] as Member, `${base[i]}/v3/${path}`, body)),
    async attach({ path }, last) {
      const [v4, v6] = [`10.123.${id}.${last}`, `fd7b:${id}::${last}`]
      await sh(
        `ip link add etcd${id}n${last} master ${bridge} up type veth peer name eth0 netns ${path.slice(path.lastIndexOf('/') + 1)}`,
      )
      await sh(
        `nsenter --net=${path} sh -ec 'ip address add ${v4}/24 dev eth0; ip address add ${v6}/64 dev eth0 nodad; ip link set eth0 up; ip link set lo up; ip route add default via 10.123.${id}.1; ip -6 route add default via fd7b:${id}::1'`,
      )
      return { v4, v6 }
    },
    async calls(method) {
      const texts = await Promise.all(
        base.map(async (url) => (await fetch(`${url}/metrics`, { tls: forFetch(files) } as RequestInit)).text()),
      )
      return texts
        .flatMap((text) => [
          ...text.matchAll(new RegExp(`^grpc_server_started_total\\{.*grpc_method="${method}".*\\} (\\S+)$`, 'gm')),
        ])
        .reduce((sum, [, n]) => sum + Number(n), 0)
    },
    async stop() {
      await Promise.all(members.map((_, i) => control.kill(i)))
      await Promise.all(members.map(({ ns }) => sh(`ip netns delete ${ns}`)))
      await sh(`ip link delete ${bridge}`)
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

function controls(
  members: readonly Member[],
  scheme: string,
  dir: string,
  options: readonly string[],
): Pick<Cluster, 'start' | 'kill' | 'freeze' | 'thaw' | 'cut' | 'heal'> {
  const at = (i: number) => members[i] as Member
  return {
    async start(i = 0, fresh = false) {
      const { name, ns } = at(i)
      if (fresh) rmSync(`${dir}/${name}`, { recursive: true, force: true })
      const log = openSync(`${dir}/${name}.log`, 'a')
      at(i).child = Bun.spawn(
        ['nsenter', `--net=/run/netns/${ns}`, '--', 'etcd', ...flags(at(i), members, scheme, dir), ...options],
        { cwd: dir, stdio: ['ignore', log, log] },
      )
      closeSync(log)
    },
    async kill(i = 0) {
      at(i).child?.kill('SIGKILL')
      await at(i).child?.exited
    },
    freeze: (i = 0) => at(i).child?.kill('SIGSTOP'),
    thaw: (i = 0) => at(i).child?.kill('SIGCONT'),
    cut(i = 0, from = 'all') {
      const members = 'tcp dport 2380 drop; tcp sport 2380 drop'
      const [inwards, outwards] = from === 'all' ? ['iif != lo drop', 'oif != lo drop'] : [members, members]
      return sh(
        `ip netns exec ${at(i).ns} nft 'table inet cut { chain in { type filter hook input priority 0; ${inwards}; }; chain out { type filter hook output priority 0; ${outwards}; }; }'`,
      )
    },
    heal: (i = 0) => sh(`ip netns exec ${at(i).ns} nft delete table inet cut`),
  }
}

type Ask = (path: string, body: object) => Promise<Reply>
// biome-ignore lint/suspicious/noExplicitAny: answers of the gateway, looked at key by key
type Reply = Record<string, any>

function keys(ask: Ask): Keyed {
  return {
    async put(key, value, ttlSeconds) {
      const lease = ttlSeconds === undefined ? undefined : (await ask('lease/grant', { TTL: ttlSeconds }))['ID']
      await ask('kv/put', { key: b64(key), value: b64(value), lease })
    },
    async putMany(pairs, lease) {
      for (let i = 0; i < pairs.length; i += 100)
        await ask('kv/txn', {
          success: pairs
            .slice(i, i + 100)
            .map(([key, value]) => ({ request_put: { key: b64(key), value: b64(value), lease } })),
        })
    },
    putBy: async (key, value, lease) => void (await ask('kv/put', { key: b64(key), value: b64(value), lease })),
    async list(prefix) {
      const { kvs = [] } = await ask('kv/range', { key: b64(prefix), range_end: b64(end(prefix)) })
      return kvs.map(({ key, value = '', lease = '0', create_revision, mod_revision }: Reply) => ({
        key: text(key),
        value: text(value),
        lease,
        create: create_revision,
        mod: mod_revision,
      }))
    },
    del: async (key, andBelow = false) =>
      void (await ask('kv/deleterange', { key: b64(key), ...(andBelow && { range_end: b64(end(key)) }) })),
    leases: async () => ((await ask('lease/leases', {}))['leases'] ?? []).map(({ ID }: Reply) => ID),
    left: async (lease) => Number((await ask('lease/timetolive', { ID: lease }))['TTL'] ?? 0),
    async compact() {
      const { header } = await ask('kv/range', { key: b64('/') })
      await ask('kv/compaction', { revision: header.revision, physical: true })
    },
  }
}

// Any member that answers will do.
function admin(base: readonly string[], files: Certificates, token: () => string): Ask {
  return async (path, body) => {
    const failures: unknown[] = []
    for (const url of base) {
      try {
        const answer = await fetch(`${url}/v3/${path}`, {
          method: 'POST',
          body: JSON.stringify(body),
          headers: token() ? { authorization: token() } : {},
          signal: AbortSignal.timeout(patient(3000)),
          tls: forFetch(files),
        } as RequestInit)
        const reply = (await answer.json()) as Reply
        if (reply['error']) throw new Error(`${path}: ${reply['error']}`)
        return reply
      } catch (cause) {
        failures.push(cause)
      }
    }
    throw failures[0]
  }
}

async function askWithin({ ns }: Member, url: string, body: object): Promise<Reply> {
  const script =
    "process.stdout.write(await (await fetch(process.argv[1], { method: 'POST', body: process.argv[2] })).text())"
  return JSON.parse(
    (
      await execa('nsenter', [
        `--net=/run/netns/${ns}`,
        '--',
        process.execPath,
        '-e',
        script,
        url,
        JSON.stringify(body),
      ])
    ).stdout,
  )
}

async function protect(ask: Ask, password: string): Promise<void> {
  await ask('auth/role/add', { name: 'root' })
  await ask('auth/user/add', { name: 'root', password: 'rootpw' })
  await ask('auth/user/grant', { user: 'root', role: 'root' })
  await ask('auth/role/add', { name: 'flannel' })
  await ask('auth/role/grant', {
    name: 'flannel',
    perm: { permType: 'READWRITE', key: b64('/coreos.com/network/'), range_end: b64(end('/coreos.com/network/')) },
  })
  await ask('auth/user/add', { name: 'flannel', password })
  await ask('auth/user/grant', { user: 'flannel', role: 'flannel' })
  await ask('auth/enable', {})
}

function flags({ name, ip }: Member, members: readonly Member[], scheme: string, dir: string): string[] {
  const [client, peer] = [`${scheme}://${ip}:2379`, `${scheme}://${ip}:2380`]
  const pair = (prefix: string) => [
    `--${prefix}cert-file=${dir}/${name}.pem`,
    `--${prefix}key-file=${dir}/${name}.key`,
    `--${prefix}trusted-ca-file=${dir}/ca.pem`,
    `--${prefix}client-cert-auth`,
  ]
  return [
    `--name=${name}`,
    `--data-dir=${dir}/${name}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=${peer}`,
    `--initial-advertise-peer-urls=${peer}`,
    `--initial-cluster=${members.map((one) => `${one.name}=${scheme}://${one.ip}:2380`).join(',')}`,
    '--log-level=error',
    ...(scheme === 'https' ? [...pair(''), ...pair('peer-')] : []),
  ]
}

async function sh(script: string): Promise<void> {
  await execa('sh', ['-ec', script])
}

function b64(text: string): string {
  return Buffer.from(text).toString('base64')
}

function text(base64: string): string {
  return Buffer.from(base64, 'base64').toString()
}

function end(prefix: string): string {
  return prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
}
