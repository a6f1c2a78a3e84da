import * as v from 'valibot'
import { definePlugin, type Rendered } from '../lib/cni/plugin.ts'
import { sleep } from '../lib/os/door.ts'
import { readRegular } from '../lib/os/reading.ts'
import { routesShape } from '../lib/pools/configuration.ts'
import { CniError, CODE, shown, ValueError } from '../lib/text/errors.ts'
import { common, field } from '../lib/text/shape.ts'
import { parseSubnetEnv, type SubnetEnv } from '../lib/text/subnet-env.ts'

const any = v.exactOptional(v.unknown())
const SUBNET_FILE = '/run/flannel/subnet.env'
const DATA_DIR = '/var/lib/cni/flannel'

const keys = v.object({
  ...common,
  subnetFile: v.optional(field.path, SUBNET_FILE),
  dataDir: v.optional(field.path, DATA_DIR),
  // flannel reads these keys. All other keys matter only to the delegate.
  delegate: v.optional(
    v.looseObject({
      type: v.optional(field.text, 'bridge'),
      name: any,
      cniVersion: any,
      ipam: any,
      ipMasq: any,
      mtu: any,
      isGateway: any,
    }),
    {},
  ),
  ipam: v.optional(v.looseObject({ type: v.optional(field.text, 'host-local'), routes: routesShape }), {}),
  runtimeConfig: v.exactOptional(v.looseObject({})),
  // A key of plumb only: the seconds that ADD waits for the subnet file.
  subnetWait: v.optional(field.int(0, 120), 10),
})
type Conf = v.InferOutput<typeof keys>

// The keys that `delegate` must not have, and why.
const REFUSED = {
  name: "the delegate has the network's name",
  ipam: 'it is made of "ipam" beside "delegate" and of the subnet file',
} as const

const conf = field.whole(keys, ({ delegate }) => {
  for (const key of ['name', 'ipam'] as const)
    if (key in delegate)
      throw new ValueError(`Cannot read delegate.${key} ${shown(delegate[key])}: want none, ${REFUSED[key]}`)
})

/** The plugin `flannel` (flannel-io/cni-plugin). */
export default definePlugin<Conf>({
  role: 'meta',
  about:
    'CNI plugin flannel: gives another plugin, bridge unless told otherwise, the subnet that the node agent wrote down',
  conf,
  dataDir: ({ dataDir }) => dataDir || DATA_DIR,
  render: async (conf, command) => rendered(conf, command === 'ADD' ? await awaited(conf) : ready(conf)),
  outline: (some) => rendered(some, attempt(some)),
})

/**
 * The delegate's configuration, as upstream makes it. The keys of `delegate` win over the defaults, except for
 * addresses and `runtimeConfig`.
 */
function rendered({ delegate, ipam, runtimeConfig }: Partial<Conf>, env: SubnetEnv | undefined): Rendered {
  const { type = 'bridge', name: _, cniVersion: __, ipam: ___, ...own } = delegate ?? {}
  const { routes = [], ...base } = ipam ?? {}
  const subnet = env && {
    ranges: env.subnets.map((subnet) => [{ subnet }]),
    routes: [...routes, ...env.networks.map((dst) => ({ dst }))],
  }
  return {
    ...(env && { ipMasq: !env.ipMasq, mtu: env.mtu }),
    ...(type === 'bridge' && { isGateway: true }),
    ...own,
    ...(runtimeConfig && { runtimeConfig }),
    type,
    ipam: { type: 'host-local', ...base, ...subnet },
  }
}

const STEP_MS = 20

// At boot the kubelet starts pods as soon as it finds the network's configuration. The node may still have that file
// from an earlier boot.
async function awaited(conf: Conf): Promise<SubnetEnv> {
  for (const end = performance.now() + conf.subnetWait * 1000; ; sleep(STEP_MS)) {
    const env = read(conf)
    if (env) return env
    if (performance.now() >= end)
      throw new CniError(
        CODE.tryLater,
        `Cannot attach to network ${conf.name} yet: ${fileOf(conf)} is not there`,
        `waited ${conf.subnetWait} s; ${LOOK}`,
      )
  }
}

const COMMANDS = 'plumb status, journalctl -u plumb-agent, kubectl logs'
const LOOK = `the node agent writes it once it has a subnet: look whether it runs, and into its log (${COMMANDS})`

function ready(conf: Conf): SubnetEnv {
  let env: SubnetEnv | undefined
  try {
    env = read(conf)
  } catch (cause) {
    throw new CniError(CODE.notReady, (cause as Error).message, LOOK, { cause })
  }
  if (!env)
    throw new CniError(CODE.notReady, `Network ${conf.name} has no subnet yet: ${fileOf(conf)} is not there`, LOOK)
  return env
}

function attempt(some: Partial<Conf>): SubnetEnv | undefined {
  try {
    return read(some)
  } catch {
    return undefined
  }
}

// An empty file means that the agent is still writing it.
function read(some: Partial<Conf>): SubnetEnv | undefined {
  const file = fileOf(some)
  let text: string | undefined
  try {
    text = readRegular(file)
  } catch (cause) {
    throw new CniError(
      CODE.io,
      `Cannot read subnetFile ${shown(file)}: want a readable file`,
      (cause as Error).message,
      { cause },
    )
  }
  return text ? parseSubnetEnv(text, file) : undefined
}

function fileOf({ subnetFile }: Partial<Conf>): string {
  return subnetFile || SUBNET_FILE
}
