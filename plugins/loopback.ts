import * as v from 'valibot'
import { type Attachment, definePlugin } from '../lib/cni/plugin.ts'
import type { Result } from '../lib/cni/result.ts'
import { decode } from '../lib/cni/versions.ts'
import { BLIND } from '../lib/os/batch-tools.ts'
import { rows } from '../lib/os/iproute2.ts'
import type { Run } from '../lib/os/run.ts'
import type { AddrRow, LinkRow } from '../lib/state/kinds/link-shape.ts'
import { CniError, CODE } from '../lib/text/errors.ts'
import type { Cidr } from '../lib/text/ip.ts'
import { common, type Shape } from '../lib/text/shape.ts'
import type { NetnsPath } from '../lib/text/values.ts'

const keys = v.looseObject(common)
type Conf = v.InferOutput<typeof keys>

/** The plugin `loopback` (upstream plugins/main/loopback). */
export default definePlugin<Conf>({
  role: 'custom',
  about: "CNI plugin loopback: brings the container's lo up, whatever CNI_IFNAME says (kubelet sends eth0)",
  conf: keys as unknown as Shape<Conf>,
  async add(conf, at, run) {
    const given = conf.prevResult === undefined ? undefined : decode(conf.prevResult, conf.cniVersion)
    const { before, link } = await bringUp(at, run)
    const foreign = link.addr_info.find(({ local, family }) =>
      family === 'inet' ? !local.startsWith('127.') : local !== '::1',
    )
    if (foreign) {
      if (!before.flags.includes('UP')) await setDown(at.netns as NetnsPath, run)
      throw new CniError(
        CODE.config,
        `loopback interface is already configured with non-loopback address ${foreign.local}/${foreign.prefixlen}`,
        'remove it from lo first',
      )
    }
    return given ?? result(at, link)
  },
  async check(_conf, at, run) {
    const link = await show(at, run)
    if (!link.flags.includes('UP'))
      throw new CniError(CODE.internal, `Cannot confirm lo in ${at.netns}: it is down`, 'want it up, as ADD left it')
  },
  async del(_conf, at, run) {
    if (at.netns) await setDown(at.netns, run)
  },
  preview(command, conf, at) {
    const ns = at.netns as NetnsPath
    if (command === 'DEL')
      return { scripts: at.netns ? [{ ns, argv: BLIND, lines: [{ text: DOWN, about: 'lo goes down' }] }] : [] }
    const given = conf.prevResult === undefined ? undefined : decode(conf.prevResult, conf.cniVersion ?? '0.1.0')
    const about = ['what lo is like before', 'lo comes up', 'its addresses: none may be but loopback ones']
    return {
      scripts: [{ ns, argv: SHOWING, lines: UP.map((text, i) => ({ text, about: about[i] as string })) }],
      result: given ?? result(at, LO),
    }
  },
})

const SHOWING: readonly string[] = ['ip', '-d', '-j', '-batch', '-']
const UP = ['addr show dev lo', 'link set dev lo up', 'addr show dev lo']
const DOWN = 'link set dev lo down'
// The kernel's defaults for lo.
const LO = {
  mtu: 65536,
  addr_info: [
    { local: '127.0.0.1', prefixlen: 8 },
    { local: '::1', prefixlen: 128 },
  ],
}

async function bringUp(at: Attachment, run: Run): Promise<{ before: LinkRow; link: LinkRow }> {
  const { status, stdout, stderr } = await run(SHOWING, `${UP.join('\n')}\n`, at.netns as NetnsPath)
  const [before, link] = rows(stdout).flat()
  if (status !== 0 || !link) throw new CniError(CODE.internal, `Cannot bring lo up in ${at.netns}`, stderr.trim())
  return { before: before as LinkRow, link: link as LinkRow }
}

async function setDown(netns: NetnsPath, run: Run): Promise<void> {
  await run(BLIND, `${DOWN}\n`, netns)
}

async function show(at: Attachment, run: Run): Promise<LinkRow> {
  const { stdout, stderr } = await run(['ip', '-d', '-j', 'addr', 'show', 'dev', 'lo'], '', at.netns as NetnsPath)
  const link = rows(stdout)[0]?.[0]
  if (!link) throw new CniError(CODE.internal, `Cannot see lo in ${at.netns}`, stderr.trim())
  return link as LinkRow
}

function result(
  at: Attachment,
  link: { readonly mtu: number; readonly addr_info: readonly Pick<AddrRow, 'local' | 'prefixlen'>[] },
): Result {
  return {
    interfaces: [{ name: 'lo', mac: '00:00:00:00:00:00', mtu: link.mtu, sandbox: at.netns as string }],
    ips: link.addr_info
      .filter(({ local }) => local.startsWith('127.') || local === '::1')
      .map(({ local, prefixlen }) => ({ interface: 0, address: `${local}/${prefixlen}` as Cidr })),
  }
}
