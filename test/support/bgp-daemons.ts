// needs: bgp-daemons
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { BGP_DAEMONS } from '../../scripts/bgp-daemons.ts'
import { type Namespace, until } from './harness.ts'

// BGP daemons of other projects, as `npm test` unpacks them: GoBGP, which kube-router has, FRR, which MetalLB has, and
// BIRD 1.6. Calico has a fork of it.

const LIBRARIES = ['', '/frr'].map((dir) => `${BGP_DAEMONS}/usr/lib/x86_64-linux-gnu${dir}`).join(':')
/** The programs of BIRD 1.6. */
export const BIRD_1 = join(BGP_DAEMONS, 'usr/sbin')
const ANSWER_MS = 30_000

/** Why there are no such daemons. Undefined when there are. */
export function missingDaemons(): string | undefined {
  const [first] = ['usr/bin/gobgpd', 'usr/lib/frr/bgpd', 'usr/sbin/bird'].filter(
    (path) => !existsSync(join(BGP_DAEMONS, path)),
  )
  return first && `${BGP_DAEMONS} has no ${first} (npm test unpacks it, where apt has the package)`
}

/** A daemon that a test runs. */
export interface Daemon {
  /** Ends it as a crash does. */
  kill(): Promise<void>
}
/** A GoBGP. */
export interface Gobgp extends Daemon {
  /** The next hops of a prefix. */
  nextHops(prefix: string): Promise<string[]>
  /** Announces a prefix. */
  announce(prefix: string, nextHop: string): Promise<void>
  /** Starts it again, in a restart that its neighbours know (RFC 4724). */
  restart(): Promise<void>
}

/** What a GoBGP or an FRR is told of its neighbours: the nodes of the cluster. */
export interface Told {
  readonly ip: string
  readonly asn: number
  readonly neighbours: readonly string[]
  readonly password: string
}

/** Starts a GoBGP in a namespace, and waits for its answer. */
export async function startGobgp(ns: Namespace, dir: string, told: Told): Promise<Gobgp> {
  mkdirSync(dir, { recursive: true })
  const conf = join(dir, 'gobgp.toml')
  writeFileSync(conf, gobgpConf(told))
  const ask = (...words: readonly string[]) => ns.exec([join(BGP_DAEMONS, 'usr/bin/gobgp'), ...words])
  const start = async (...more: readonly string[]) => {
    const argv = [join(BGP_DAEMONS, 'usr/bin/gobgpd'), '-f', conf, '--api-hosts', '127.0.0.1:50051', ...more]
    const started = spawn(ns, argv, join(dir, 'gobgp.log'))
    await until(async () => (await ask('neighbor')).status === 0, ANSWER_MS)
    return started
  }
  let daemon = await start()
  return {
    kill: () => daemon.kill(),
    async restart() {
      daemon = await start('-r')
    },
    async nextHops(prefix) {
      const { stdout } = await ask('global', 'rib', '-j')
      const paths: readonly { readonly attrs: readonly { readonly type: number; readonly nexthop?: string }[] }[] =
        JSON.parse(stdout || '{}')[prefix] ?? []
      return paths.flatMap(({ attrs }) => attrs.flatMap(({ nexthop }) => nexthop ?? [])).sort()
    },
    async announce(prefix, nextHop) {
      const { status, stdout, stderr } = await ask('global', 'rib', 'add', prefix, 'nexthop', nextHop)
      assert.equal(status, 0, stdout + stderr)
    },
  }
}

function gobgpConf({ ip, asn, neighbours, password }: Told): string {
  const of = (address: string) => `
[[neighbors]]
  [neighbors.config]
    peer-as = 64512
    neighbor-address = "${address}"
    auth-password = "${password}"
  [neighbors.timers.config]
    connect-retry = 5
  [neighbors.graceful-restart.config]
    enabled = true
    restart-time = 60
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
    [neighbors.afi-safis.mp-graceful-restart.config]
      enabled = true
`
  return `[global.config]\n  as = ${asn}\n  router-id = "${ip}"\n${neighbours.map(of).join('')}`
}

/** Starts an FRR, zebra and bgpd, in a namespace. It writes what it learns into the kernel. */
export async function startFrr(ns: Namespace, dir: string, { ip, asn, neighbours, password }: Told): Promise<Daemon> {
  mkdirSync(dir, { recursive: true })
  // FRR wants this group, which its package makes. The tests have an /etc of their own.
  const groups = readFileSync('/etc/group', 'utf8').replace(/^frrvty:.*\n/m, '')
  writeFileSync('/etc/group', `${groups}frrvty:x:64999:root\n`)
  const of = (address: string) => [
    ` neighbor ${address} remote-as 64512`,
    ` neighbor ${address} password ${password}`,
    ` neighbor ${address} timers connect 2`,
  ]
  const conf = [
    'hostname router',
    `router bgp ${asn}`,
    ` bgp router-id ${ip}`,
    ' no bgp ebgp-requires-policy',
    ' bgp graceful-restart',
    ...neighbours.flatMap(of),
    ' address-family ipv4 unicast',
    '  maximum-paths 8',
  ]
  writeFileSync(join(dir, 'zebra.conf'), 'hostname router\n')
  writeFileSync(join(dir, 'bgpd.conf'), `${conf.join('\n')}\n`)
  const start = (name: string, more: readonly string[] = []) => {
    const words = ['-u', 'root', '-g', 'root', '-z', join(dir, 'zserv.api'), '-i', join(dir, `${name}.pid`)]
    const files = ['--vty_socket', dir, '-f', join(dir, `${name}.conf`), '-P', '0', '--log', `file:${dir}/${name}.log`]
    return spawn(ns, [join(BGP_DAEMONS, 'usr/lib/frr', name), ...words, ...files, ...more], join(dir, `${name}.out`))
  }
  const zebra = start('zebra')
  await until(() => existsSync(join(dir, 'zserv.api')), ANSWER_MS)
  const bgpd = start('bgpd')
  await until(() => existsSync(join(dir, 'bgpd.vty')), ANSWER_MS).catch((cause: Error) => {
    throw new Error(`${cause.message}: ${readFileSync(join(dir, 'bgpd.out'), 'utf8')}`)
  })
  return {
    async kill() {
      await bgpd.kill()
      await zebra.kill()
    },
  }
}

function spawn(ns: Namespace, argv: readonly string[], log: string): Daemon {
  const child = Bun.spawn(['nsenter', `--net=${ns.path}`, '--', ...argv], {
    stdio: ['ignore', Bun.file(log), Bun.file(log)],
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LD_LIBRARY_PATH: LIBRARIES },
  })
  return {
    async kill() {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}
