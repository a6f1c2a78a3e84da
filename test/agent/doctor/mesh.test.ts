// lane: long
// Tests agent/doctor: addresses, sizes and checksums of packets between nodes.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import type { Status } from '../../../agent/state/status.ts'
import {
  cacheOf,
  doctor,
  type Fault,
  type Fixture,
  isClean,
  isFoundAlone,
  type Mended,
  makeNetwork,
  makeSettings,
  mend,
  sh,
  withFixture,
  writeTool,
} from '../../support/doctor.ts'
import { type Namespace, until } from '../../support/harness.ts'
import { fileStore, inCluster, type Node } from '../../support/nodes.ts'

const LATE = 45_000
const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
const NAT = '10.0.2.15'

/** Sends UDP packets with a wrong checksum, as a card with a broken offload does. */
const SENDER = `import socket, struct, sys, time
to = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
while True:
  to.sendto(struct.pack('!HHHH', 40000, 40001, 12, 0x1234) + b'data', (sys.argv[1], 0))
  time.sleep(0.1)`

function start(ns: Namespace, argv: readonly string[]): Bun.Subprocess {
  return Bun.spawn(['nsenter', `--net=${ns.path}`, '--', ...argv], { stdio: ['ignore', 'ignore', 'ignore'] })
}

async function statusOf({ dir }: Node): Promise<Status> {
  return (await (await fetch('http://plumb/status', { unix: join(dir, 'agent.sock') })).json()) as Status
}

/** Commands that end the pod, as a runtime does. */
function deleting({ node, conf, containerId, pod, bin }: Fixture): string[] {
  const text = JSON.stringify({ cniVersion: '1.0.0', name: 'cbr0', ...conf })
  const variables = `CNI_COMMAND=DEL CNI_CONTAINERID=${containerId} CNI_NETNS=${pod.path} CNI_IFNAME=eth0 CNI_PATH=${bin}`
  return [`${variables} ${bin}/flannel <<'END'`, text, 'END', `rm ${cacheOf(node, containerId)}`]
}

async function isFoundAndMended(fixture: Fixture, fault: Fault): Promise<void> {
  await fault.make(fixture)
  await isFoundAlone(fixture, fault)
  await isClean(fixture)
}

describe('plumb doctor and packets between nodes', () => {
  it(
    'finds each of DR27, DR20, DR18, DR45 alone: a network of another program, wrong checksums, a tunnel and pods with a larger MTU',
    withFixture(async (fixture) => {
      const { node, other, hub, containerId } = fixture
      makeSettings()
      await isFoundAndMended(fixture, {
        code: 'DR27',
        what: 'a bridge with a network within that of pods',
        make: () => sh(node.ns, 'ip link add docker0 type bridge; ip addr add 10.244.128.1/17 dev docker0'),
        says: /^The network of pods 10\.244\.0\.0\/16 overlaps 10\.244\.128\.1\/17 of docker0: packets to one of them go to the other; one of the two needs another network$/,
      })
      const stop = start(other.ns, ['/usr/bin/python3', '-c', SENDER, '172.30.0.1'])
      await isFoundAlone(fixture, {
        code: 'DR20',
        what: 'another node sends wrong checksums',
        make: () => undefined,
        says: /^\d+ packets with wrong checksums came in 1\.\d s \(Udp\.InCsumErrors\): the kernel drops them, and connections hang; switch the offload of checksums off at the sender$/,
      })
      // What the commands do at the sender.
      stop.kill('SIGKILL')
      await isClean(fixture)
      // As kubelet starts the pod again.
      writeTool(fixture, 'crictl', `[ "$1 $2" = "stopp ${containerId}" ] || exit 1`, ...deleting(fixture))
      await isFoundAndMended(fixture, {
        code: 'DR45',
        severity: 'warning',
        what: 'the link between the nodes has a smaller MTU now',
        make: async () => {
          await sh(hub, 'ip link set dev port1 mtu 1400')
          await sh(node.ns, 'ip link set dev eth0 mtu 1400')
        },
        says: /^1 pod has MTU 1430, and the network has 1330 now \(doctor-\S+\): their large packets to other nodes are lost$/,
      })
      await mend(fixture, ['systemctl stop plumb-agent'])
      await isFoundAndMended(fixture, {
        code: 'DR18',
        what: 'it has a smaller one, and no agent runs',
        make: () => sh(node.ns, 'ip link set dev eth0 mtu 1300'),
        says: /^flannel\.1 has MTU 1350, and eth0 with MTU 1300 leaves room for 1250: larger packets of pods are lost or come in fragments$/,
      })
    }),
  )
  it(
    'DR23: finds nodes that announce the address of a NAT link, as Vagrant gives it to each machine',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=2'],
      async ({ nodes, hub }, test) => {
        test.timeout(200_000)
        const [node, other] = nodes as [Node, Node]
        for (const { n, ns } of [node, other])
          await sh(
            ns,
            `ip link add eth1 type veth peer name nat netns ${hub.path} && nsenter --net=${hub.path} ip link set nat name nat${n} up
            ip addr add ${NAT}/24 dev eth1; ip link set eth1 up; ip route replace default via 10.0.2.2 dev eth1`,
          )
        const mended = (each: Node): Mended => ({ ...makeNetwork(each), agent: each.agent() })
        const [one, two] = [mended(node), mended(other)]
        makeSettings()
        const said =
          /^This node and n[12] announce 10\.0\.2\.15 of eth1: packets to pods of the others come back to this node$/
        await until(async () => (await doctor(two)).findings.length > 0, LATE)
        const { findings } = await doctor(two)
        assert.deepEqual(
          findings.map(({ code }) => code),
          ['DR23'],
        )
        await isFoundAlone(one, { code: 'DR23', what: 'both have the address', make: () => undefined, says: said })
        await mend(
          two,
          findings.flatMap(({ commands }) => commands),
        )
        await Promise.all([isClean(one), isClean(two)])
        const { peers = [] } = await statusOf(node)
        assert.deepEqual(
          peers.map(({ ips }) => ips.v4),
          ['172.30.0.2'],
        )
      },
    ),
  )
})
