// lane: crash
// Tests lib/verbs, killed at every step.
import assert from 'node:assert/strict'
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ENV, flannelConf } from '../../../support/flannel.ts'
import type { Namespace } from '../../../support/harness.ts'
import { standIns } from '../../../support/harness.ts'
import { bridgeConf, type Conf, containerId, network } from '../../../support/network.ts'
import { skip } from '../../../support/skip.ts'
import type { Figures } from './figures.ts'
import { type Machine, plain, pods, powerLoss } from './reboot.ts'
import { STRACE } from './shots.ts'

const DUAL = ['10.1.0.0/24', 'fd00:1::/64']
const DIST = join(import.meta.dir, '../../../../dist')
const WHOLE = process.env['PLUMB_CRASH']
type Nodes = Record<'node' | 'pod' | 'other', Namespace>

/** One verb of a network: another pod is there before it, and for what is not ADD its own. */
function attaching(conf: Conf, verb: 'ADD' | 'DEL' | 'GC', dirs: readonly string[]): Machine {
  const gone = { id: '' }
  return {
    dirs,
    program: conf['type'] as string,
    verb,
    async prepare({ node, pod, other }) {
      gone.id = containerId(pod)
      await network(node, conf).add(other)
      if (verb !== 'ADD') await network(node, conf).add(pod)
    },
    act({ node, pod, other }) {
      const net = network(node, conf)
      return { ADD: () => net.add(pod), DEL: () => net.del(pod), GC: () => net.gc(other) }[verb]()
    },
    rise: (nodes) => pods(conf, nodes, gone.id),
  }
}

/** `plumb cni`, which remembers results as libcni does. */
function remembering(verb: 'add' | 'del'): Machine {
  const dir = mkdtempSync('/run/desk-')
  const file = join(dir, '10-net.conflist')
  const { name, type, ...bridge } = bridgeConf({ isGateway: true }, ...DUAL)
  writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name, plugins: [{ type, ...bridge }] }))
  const call = ({ node }: Nodes, ...argv: string[]) =>
    node.exec([standIns.get(`plumb ${verb}`) ?? join(DIST, 'plumb'), 'cni', ...argv], {
      env: { NETCONFPATH: dir, CNI_PATH: DIST },
    })
  const good = async (nodes: Nodes, ...argv: string[]) => {
    const done = await call(nodes, ...argv)
    assert.equal(done.status, 0, `${argv}: ${done.stdout}${done.stderr}`)
    return done
  }
  return {
    dirs: ['/var/lib/cni/results'],
    program: 'plumb',
    verb,
    async prepare(nodes) {
      await good(nodes, 'add', name, nodes.other.path)
      if (verb === 'del') await good(nodes, 'add', name, nodes.pod.path)
    },
    act: (nodes) => good(nodes, verb, name, nodes.pod.path),
    async rise(nodes) {
      plain(await good(nodes, 'list'))
      plain(await good(nodes, 'gc', name, '--all'))
      plain(await good(nodes, 'add', name, nodes.pod.path))
      assert.match((await good(nodes, 'list')).stdout, /10\.1\.0\.\d+\/24/)
      plain(await good(nodes, 'del', name, nodes.pod.path))
      assert.match((await good(nodes, 'list')).stdout, /^no attachment/)
    },
  }
}

const POOL = '/var/lib/cni/networks'
const MACHINES: Readonly<Record<string, () => Machine>> = {
  ...Object.fromEntries(
    (['ADD', 'DEL', 'GC'] as const).map((verb) => [
      `${verb} of bridge with host-local`,
      () =>
        attaching(
          {
            ...bridgeConf({ isDefaultGateway: true }, ...DUAL),
            ipam: { type: 'host-local', ranges: DUAL.map((subnet) => [{ subnet }]) },
          },
          verb,
          [POOL],
        ),
    ]),
  ),
  ...Object.fromEntries(
    (['ADD', 'DEL', 'GC'] as const).map((verb) => [
      `${verb} of flannel`,
      () => attaching(flannelConf(ENV.dual, { dataDir: undefined }), verb, [POOL, '/var/lib/cni/flannel']),
    ]),
  ),
  'plumb cni add': () => remembering('add'),
  'plumb cni del': () => remembering('del'),
}

describe('a power loss at any moment, and an empty /run after it', () => {
  before(function () {
    if (!existsSync(STRACE)) skip(this, `${STRACE} is not installed, which tells what a program writes`)
    mkdirSync('/var/lib/cni', { recursive: true })
  })
  for (const [what, machine] of Object.entries(MACHINES))
    it(`${what}: every file is old or new, ADD works, no address is given twice, GC frees the rest`, async function () {
      this.timeout(WHOLE ? 3_600_000 : 60_000)
      const began = performance.now()
      const states = await powerLoss.call(this, machine(), WHOLE ? undefined : 2)
      if (WHOLE)
        appendFileSync(
          WHOLE,
          `${JSON.stringify({ subject: 'power loss', verb: what, points: states, rounds: states, killed: states, faults: [], ms: performance.now() - began } satisfies Figures)}\n`,
        )
    })
})
