// lane: long
// Tests agent/doctor: what is wrong with the programs, the pools and the neighbours of a node.
import assert from 'node:assert/strict'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import {
  beside,
  containerd,
  doctor,
  type Fault,
  type Fixture,
  isClean,
  isFoundAlone,
  sh,
  withFixture,
} from '../../support/doctor.ts'
import { type Namespace, plugin, until } from '../../support/harness.ts'
import { makeNewer } from '../../support/newer-nft.ts'

const LATE = 45_000
const CERTIFICATE = join(mkdtempSync(join(tmpdir(), 'certificate-')), 'client.pem')
after(() => rmSync(dirname(CERTIFICATE), { recursive: true, force: true }))
const PYTHON = '/usr/bin/python3'

async function isFoundAndMended(fixture: Fixture, fault: Fault): Promise<void> {
  await fault.make(fixture)
  await isFoundAlone(fixture, fault)
  await isClean(fixture)
}

async function macOf(ns: Namespace, link: string): Promise<string> {
  const { stdout } = await ns.exec(['ip', '-json', 'link', 'show', 'dev', link])
  return JSON.parse(stdout)[0].address
}

describe('plumb doctor and the programs of a node', () => {
  it(
    'DR41, DR42: finds a network that is newer than containerd, and one that containerd does not read',
    withFixture(async (fixture) => {
      const { node, lists } = fixture
      await beside(node.ns, containerd(fixture, lists), async () => {
        await isClean(fixture)
        const path = join(lists, '10-flannel.conflist')
        await isFoundAndMended(fixture, {
          code: 'DR41',
          what: 'the network has a newer version',
          make: () => writeFileSync(path, readFileSync(path, 'utf8').replace('"1.0.0"', '"1.1.0"')),
          says: /10-flannel\.conflist has cniVersion 1\.1\.0, and containerd 1\.6\.\d+ \(pid \d+\) reads 1\.0\.0 at most: it refuses what the plugins answer, and no pod starts$/,
        })
      })
      // Anybody may call a program so. The doctor must not start it as root.
      const own = join(mkdtempSync(join(tmpdir(), 'own-')), 'containerd')
      copyFileSync(PYTHON, own)
      await sh(node.ns, `chown -R nobody ${dirname(own)}; chmod 755 ${own}`)
      await beside(node.ns, [own, '-c', 'import time; time.sleep(600)'], async () => {
        await isClean(fixture)
        assert.deepEqual((await doctor(fixture)).notMade, [])
      })
      rmSync(dirname(own), { recursive: true })
      await beside(node.ns, containerd(fixture, join(node.dir, 'k3s')), () =>
        isFoundAndMended(fixture, {
          code: 'DR42',
          what: 'containerd reads another folder',
          make: () => undefined,
          says: /^containerd \(pid \d+\) takes networks from .*\/k3s, and .*10-flannel\.conflist is not there: pods are not in the network cbr0$/,
        }),
      )
    }),
  )

  it(
    'DR44: finds the program that listens at the host port of a pod',
    withFixture(async (fixture) => {
      const { node, pod, bin, containerId, added } = fixture
      const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }]
      const conf = { cniVersion: '1.0.0', name: 'cbr0', type: 'portmap', runtimeConfig: { portMappings } }
      const call = (command: string) =>
        plugin(
          'portmap',
          { command, conf: { ...conf, prevResult: added }, containerId, netns: pod, ifname: 'eth0', path: bin },
          node.ns,
        )
      const made = await call('ADD')
      assert.equal(made.status, 0, made.stdout)
      await isClean(fixture)
      const server = [PYTHON, '-m', 'http.server', '--bind', '0.0.0.0', '8080']
      await beside(node.ns, server, () =>
        isFoundAndMended(fixture, {
          code: 'DR44',
          what: 'a program listens there',
          make: () => undefined,
          says: /^TCP port 8080 of this node leads to container doctor-\S+ \(10\.244\.\S+, fd00:244:\S+\), and python3 \(pid \d+\) listens there: python3 does not get packets from other machines$/,
        }),
      )
      await beside(
        node.ns,
        server.map((word) => word.replace('0.0.0.0', '127.0.0.1')),
        () => isClean(fixture),
      )
      assert.equal((await call('DEL')).status, 0)
    }),
  )

  it(
    'DR30: finds addresses of pods that went without DEL; DR16: and rules that nft cannot read',
    withFixture(async (fixture) => {
      const { node, bin, conf } = fixture
      const name = `gone-${process.pid}`
      await isFoundAndMended(fixture, {
        code: 'DR30',
        severity: 'warning',
        what: 'a pod went without DEL',
        make: async () => {
          await sh(node.ns, `ip netns add ${name}`)
          const given = { cniVersion: '1.0.0', name: 'cbr0', ...conf }
          const netns = { path: `/run/netns/${name}` } as Namespace
          const request = { command: 'ADD', conf: given, containerId: name, netns, ifname: 'eth0', path: bin }
          const made = await plugin('flannel', request, node.ns)
          await sh(node.ns, `ip netns del ${name}`)
          assert.equal(made.status, 0, made.stdout)
        },
        says: /^The pool 10\.244\.\d+\.0\/24 of the network cbr0 has 2 of its 253 addresses taken, 1 of them by pods that are gone: no pod starts when it is full$/,
      })
      makeNewer(node.ns)
      const { findings } = await doctor(fixture)
      assert.deepEqual(
        findings.map(({ code, text }) => [code, text.replace(/^nft \S+/, 'nft')]),
        [
          [
            'DR16',
            'nft cannot read the tables inet newer (netlink: Error: Unknown data type in set key 61): nobody sees whether these rules drop packets of pods; a newer nft reads them',
          ],
        ],
      )
    }),
  )

  it(
    'DR31: finds a node that has the VXLAN device of another one',
    withFixture(async (fixture) => {
      const { node, other } = fixture
      await fixture.agent.stop()
      await sh(node.ns, `ip link set dev flannel.1 address ${await macOf(other.ns, 'flannel.1')}`)
      const agent = node.agent()
      await agent.ready(30_000)
      await isFoundAndMended(
        { ...fixture, agent },
        {
          code: 'DR31',
          what: 'the MAC is the same',
          make: () => undefined,
          says: /^n2 and this node have the MAC \S+: pods of one of them are not reached; its disk is a copy of the other's$/,
        },
      )
    }),
  )

  it(
    'DR22: finds another machine that answers for the address of the uplink',
    withFixture(async (fixture) => {
      const { hub } = fixture
      await sh(hub, 'ip addr add 172.30.0.1/24 dev hub0')
      const mac = await macOf(hub, 'hub0')
      const { findings } = await doctor(fixture)
      assert.deepEqual(
        findings.map(({ code, text }) => [code, text]),
        [
          [
            'DR22',
            `172.30.0.1 of eth0 also answers from MAC ${mac}: packets for this node go to that machine at times; give one of the two another address`,
          ],
        ],
      )
      for (const { commands } of findings) for (const one of commands) await sh(fixture.node.ns, one)
      await sh(hub, 'ip addr del 172.30.0.1/24 dev hub0')
      await until(async () => (await doctor(fixture)).findings.length === 0, LATE)
      await isClean(fixture)
    }),
  )

  it(
    'DR36: finds a certificate of the agent that has ended',
    withFixture(async (fixture) => {
      const { node } = fixture
      const [key, request] = [`${CERTIFICATE}.key`, `${CERTIFICATE}.csr`]
      await sh(node.ns, `openssl req -new -newkey rsa:2048 -nodes -keyout ${key} -subj /CN=n1 -out ${request}`)
      const make = `openssl x509 -req -in ${request} -signkey ${key} -out ${CERTIFICATE}`
      await sh(node.ns, `${make} -days 365`)
      await isClean(fixture)
      await sh(node.ns, `${make} -days -1`)
      await isFoundAlone(fixture, {
        code: 'DR36',
        severity: 'warning',
        what: 'a certificate has ended',
        make: () => undefined,
        says: /^The certificate in \S+ ended at \d{4}-\S+Z: the API server and etcd then refuse this node$/,
      })
      await sh(node.ns, `${make} -days 365`)
      await isClean(fixture)
    }, `--etcd-certfile=${CERTIFICATE}`),
  )

  it(
    'DR3: finds a strict filter that drops packets whose answers leave by another link; DR7: IPv6 that is disabled on the bridge; DR52: another network program',
    withFixture(async (fixture) => {
      const { node, hub } = fixture
      await sh(hub, 'ip addr add 203.0.113.9/32 dev lo; ip addr add 172.30.0.250/24 dev hub0')
      // The strict filter drops ARP of this sender, too.
      const mac = await macOf(node.ns, 'eth0')
      await sh(hub, `ip neigh replace 172.30.0.1 lladdr ${mac} dev hub0 nud permanent`)
      await sh(node.ns, 'ip route add 203.0.113.0/24 dev cni0')
      await beside(hub, ['ping', '-i', '0.1', '-I', '203.0.113.9', '172.30.0.1'], async () => {
        await isFoundAndMended(fixture, {
          code: 'DR3',
          what: 'the filter is strict on the uplink',
          make: () => sh(node.ns, 'sysctl -qw net.ipv4.conf.eth0.rp_filter=1'),
          says: /^The reverse path filter drops \d+ packets a minute; it is strict \(1\) on eth0: packets are lost whose answers would leave by another link$/,
        })
      })
      await isFoundAndMended(fixture, {
        code: 'DR7',
        what: 'IPv6 is disabled on the bridge',
        make: () => sh(node.ns, 'sysctl -qw net.ipv6.conf.cni0.disable_ipv6=1'),
        says: /^net\.ipv6\.conf\.cni0\.disable_ipv6 is 1: pods have no IPv6$/,
      })
      const flanneld = join(node.dir, 'flanneld')
      copyFileSync('/usr/bin/sleep', flanneld)
      await beside(node.ns, [flanneld, '600'], () =>
        isFoundAndMended(fixture, {
          code: 'DR52',
          what: 'a program with the name of flannel',
          make: () => undefined,
          says: /^flanneld of flannel runs on this node \(pid \d+\): it and the agent program the same devices and routes$/,
        }),
      )
    }),
  )
})
