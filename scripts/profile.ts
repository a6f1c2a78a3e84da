// Makes the profile of the engine for this machine's architecture (native/profile), which the build reads. Needs root, and changes nothing of the
// machine: its calls run in network, mount and process namespaces of their own.
//   node_modules/.bin/bun scripts/profile.ts
import { copyFileSync, linkSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { plugins } from './build.ts'
import { type Arch, compilePlugins, PROFILES } from './engine.ts'

const SANDBOX = [
  ...'unshare --net --mount --pid --fork --mount-proc --kill-child=KILL --propagation private sh -ec'.split(' '),
  'mount -t tmpfs tmpfs /run; ip link set lo up; ip netns add pod; exec "$@"',
  'sandbox',
]
const ROUNDS = 5
/** A plugin in the list of a runtime: its type and its configuration. */
type Part = Readonly<Record<string, unknown>> & { readonly type: string }

/** The lists that are called. Plain bridges, pairs and loopback are what most calls are. */
const LISTS: readonly (readonly Part[])[] = [
  [{ type: 'loopback' }],
  [{ type: 'bridge', isGateway: true, ipam: pool('10.1.0.0/16') }],
  [{ type: 'ptp', ipam: pool('10.2.0.0/16') }],
  [
    { type: 'bridge', bridge: 'cni1', isDefaultGateway: true, ipMasq: true, ipam: pool('10.3.0.0/16', 'fd00:3::/64') },
    { type: 'portmap', runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] } },
    { type: 'firewall' },
    { type: 'tuning', sysctl: { 'net.ipv4.conf.eth0.rp_filter': '2' } },
  ],
  [{ type: 'ptp', ipMasq: true, routed: true, ipam: pool('10.4.0.0/16') }],
]

function pool(...subnets: readonly string[]): object {
  return {
    type: 'host-local',
    dataDir: '/run/pools',
    ranges: subnets.map((subnet) => [{ subnet }]),
    routes: [{ dst: '0.0.0.0/0' }],
  }
}

/** Makes an executable that counts, calls its plugins, and keeps what it counted. Throws Error. */
async function main(): Promise<void> {
  if (process.getuid?.() !== 0) throw new Error('Cannot make network namespaces: run this as root')
  const draft = mkdtempSync(join(tmpdir(), 'plumb-profile-'))
  const [bin, counts] = [join(draft, 'bin'), join(draft, 'counts')]
  try {
    mkdirSync(bin)
    mkdirSync(counts)
    const [first = '', ...others] = plugins()
    await compilePlugins(join(bin, first), [first, ...others], process.arch as Arch, { counts })
    for (const name of others) linkSync(join(bin, first), join(bin, name))
    // The build has called the executable, too, to freeze its heap.
    for (const name of profiles(counts)) rmSync(join(counts, name))
    const [command = '', ...args] = [...SANDBOX, process.execPath, import.meta.path, bin]
    await execa(command, args, { stdio: 'inherit' })
    const folder = join(PROFILES, process.arch)
    mkdirSync(folder, { recursive: true })
    for (const name of profiles(counts)) copyFileSync(join(counts, name), join(folder, name))
    process.stderr.write(`profile: made ${folder}\n`)
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}

function profiles(folder: string): string[] {
  return readdirSync(folder).filter((name) => name.endsWith('.gcda'))
}

/** Calls the plugins of a folder, in namespaces of their own. Throws Error when a call fails. */
async function train(bin: string): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    await call(bin, 'bridge', { CNI_COMMAND: 'VERSION' }, '')
    for (const [n, list] of LISTS.entries()) await live(bin, `list${n}`, `container${round}`, list)
  }
}

// The life of one pod: ADD, CHECK and DEL of each plugin of its list, then GC and STATUS.
async function live(bin: string, network: string, id: string, list: readonly Part[]): Promise<void> {
  const env = { CNI_CONTAINERID: id, CNI_NETNS: '/run/netns/pod', CNI_IFNAME: 'eth0', CNI_PATH: bin }
  const ask = (verb: string, part: Part, more: object = {}) =>
    call(
      bin,
      part.type,
      { ...env, CNI_COMMAND: verb },
      JSON.stringify({ cniVersion: '1.1.0', name: network, ...part, ...more }),
    )
  let result: object = {}
  for (const part of list) result = { prevResult: JSON.parse(await ask('ADD', part, result)) }
  for (const part of list) await ask('CHECK', part, result)
  for (const part of list.toReversed()) await ask('DEL', part, result)
  for (const part of list) await ask('GC', part, { 'cni.dev/valid-attachments': [] })
  for (const part of list) await ask('STATUS', part)
}

async function call(bin: string, type: string, env: Readonly<Record<string, string>>, input: string): Promise<string> {
  const { stdout, exitCode } = await execa(join(bin, type), { env, extendEnv: false, input, reject: false })
  if (exitCode !== 0) throw new Error(`${type} ${env['CNI_COMMAND']} failed: ${stdout}`)
  return stdout
}

const [bin] = process.argv.slice(2)
await (bin === undefined ? main() : train(bin))
