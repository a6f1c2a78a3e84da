// lane: vmlong
// Tests agent/doctor: tables of the whole kernel, which only a machine of its own may fill, and modules.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import {
  DIST,
  doctor,
  isClean,
  isFoundAlone,
  makeNetwork,
  type Place,
  sh,
  withShape,
  writeTool,
} from '../../support/doctor.ts'
import { namespaceAt, until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'

const LATE = 60_000
/** The namespace in which the kernel has the limits of its tables. */
const HOME = '/machine-netns'
const MISSING = '/etc/modprobe.d/missing.conf'
/** The program by which the kernel loads modules itself. */
const LOADER = '/proc/sys/kernel/modprobe'
/** Lies in dist/, because the kernel does not see the files of a test. In the machine, dist/ is a copy. */
const REFUSING = '#!/bin/sh\ncase "$*" in *ipip*) exit 1;; esac\nexec /sbin/modprobe "$@"\n'

/** The machine itself as a node without an agent. */
async function onMachine(work: (place: Place) => Promise<void>): Promise<void> {
  const [file, dir] = ['/run/netns/machine', mkdtempSync(join(tmpdir(), 'machine-'))]
  mkdirSync('/run/netns', { recursive: true })
  writeFileSync(file, '')
  await execa('mount', ['--bind', HOME, file])
  try {
    const ns = namespaceAt('machine', 'machine')
    const place = makeNetwork({ n: 1, name: 'machine', ns, dir, options: [] } as unknown as Node)
    // A network that needs no agent.
    const ipam = { type: 'host-local', ranges: [[{ subnet: '10.9.0.0/16' }]] }
    const list = { cniVersion: '1.0.0', name: 'own', plugins: [{ type: 'bridge', ipam }] }
    writeFileSync(join(place.lists, '10-flannel.conflist'), JSON.stringify(list))
    await work(place)
  } finally {
    await execa('umount', [file])
    rmSync(dir, { recursive: true })
  }
}

/** Waits until the doctor finds this alone, checks its sentence, and runs its commands. */
async function isMended(place: Place, code: string, says: RegExp): Promise<void> {
  let found = (await doctor(place)).findings
  await until(async () => {
    found = (await doctor(place)).findings
    return found.length > 0
  }, LATE)
  assert.deepEqual(
    found.map((one) => one.code),
    [code],
    JSON.stringify(found),
  )
  assert.match(found[0]?.text ?? '', says)
  for (const { commands } of found) await sh(place.node.ns, commands.join('\n'))
  await isClean(place)
}

describe('plumb doctor and tables of the kernel', () => {
  it('DR4: finds a full table of connections; DR5: and a full table of neighbours, in which permanent ones do not count', async function (this: Mocha.Context) {
    this.timeout(600_000)
    await onMachine(async (place) => {
      const { ns } = place.node
      await execa('modprobe', ['nf_conntrack'])
      await sh(
        ns,
        `nft 'table ip tracked { chain first { type filter hook output priority 0; ct state new accept; }; }'
        ip link set lo up; ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up`,
      )
      try {
        await isClean(place)
        const flows = `import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(20000, 20100): one.sendto(b'x', ('127.0.0.1', port))`
        await sh(ns, `sysctl -w net.netfilter.nf_conntrack_max=100\n/usr/bin/python3 - <<'END'\n${flows}\nEND`)
        await isMended(
          place,
          'DR4',
          /^The table of connections has (9\d|100) of at most 100 \(net\.netfilter\.nf_conntrack_max\).*: new connections are lost when it is full$/,
        )
        const neighbours = (from: number, state: string) =>
          Array.from(
            { length: 120 },
            (_, i) => `neigh replace 10.1.0.${from + i} lladdr 02:00:00:00:00:01 dev eth0 nud ${state}`,
          )
        const batch = (lines: readonly string[]) => sh(ns, `ip -batch - <<'END'\n${lines.join('\n')}\nEND`)
        await sh(ns, 'sysctl -w net.ipv4.neigh.default.gc_thresh3=128')
        await batch(neighbours(2, 'permanent'))
        await isClean(place)
        await batch(neighbours(130, 'reachable'))
        await isMended(
          place,
          'DR5',
          /^The table of IPv4 neighbours has 1\d\d of at most 128 \(net\.ipv4\.neigh\.default\.gc_thresh3\): packets to new neighbours are lost when it is full$/,
        )
      } finally {
        await sh(ns, 'nft delete table ip tracked; ip addr flush dev eth0; ip neigh flush all; ip link set eth0 down')
      }
    })
  })

  it(
    'DR6: finds that the backend has no module; the node is ready as soon as it has one',
    inCluster(
      1,
      (one) => fileStore(one, { Network: '10.244.0.0/16', Backend: { Type: 'ipip' } }),
      async ({ nodes }, test) => {
        test.timeout(600_000)
        const [node] = nodes as [Node]
        await execa('modprobe', ['-r', 'ipip'])
        // As on a kernel whose package of further modules is not installed.
        const loader = readFileSync(LOADER, 'utf8')
        writeFileSync(join(DIST, 'loader'), REFUSING, { mode: 0o755 })
        writeFileSync(LOADER, join(DIST, 'loader'))
        writeFileSync(MISSING, 'install ipip /bin/false\n')
        const place = makeNetwork(node)
        const agent = node.agent()
        writeTool(place, 'apt-get', `[ "$*" = "install -y linux-modules-extra-$(uname -r)" ] && rm ${MISSING}`)
        await isFoundAlone(
          { ...place, agent },
          {
            code: 'DR6',
            what: 'ipip is not there',
            make: () => undefined,
            says: /this kernel has no links of type ipip: .*: this node has no connection to pods of other nodes$/,
          },
        )
        await agent.ready(LATE)
        await isClean(place)
        writeFileSync(LOADER, loader)
      },
    ),
  )

  it(
    'wireguard: finds nothing with the agent and without, and makes every check',
    withShape({ network: { Network: '10.244.0.0/16', Backend: { Type: 'wireguard' } } }, async (fixture) => {
      await isClean(fixture)
      assert.deepEqual((await doctor(fixture)).notMade, [])
      await fixture.agent.stop()
      await isClean(fixture)
    }),
  )
})
