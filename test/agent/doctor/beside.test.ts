// lane: long
// Tests agent/doctor on healthy nodes with other programs, and without root.
import assert from 'node:assert/strict'
import { renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DOCKER } from '../../support/docker.ts'
import { beside, containerd, DIST, doctor, isClean, sh, withFixture } from '../../support/doctor.ts'
import { plugin } from '../../support/harness.ts'
import { KUBE_PROXY } from '../../support/kube-proxy.ts'

describe('plumb doctor on healthy nodes with other programs', () => {
  it(
    'beside Docker, kube-proxy, pods of macvlan in a second network, and Multus: finds nothing with the agent and without',
    withFixture(async (fixture) => {
      const { node, pod, lists, bin, containerId } = fixture
      await sh(
        node.ns,
        'ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up',
      )
      await sh(node.ns, `iptables-restore --noflush <<'END'\n${DOCKER}END`)
      await isClean(fixture)
      await sh(node.ns, `iptables-restore --noflush <<'END'\n${KUBE_PROXY}END`)
      await isClean(fixture)
      const ipam = { type: 'host-local', dataDir: join(node.dir, 'second'), ranges: [[{ subnet: '10.1.0.0/24' }]] }
      const second = { cniVersion: '1.0.0', name: 'second', type: 'macvlan', master: 'eth0', ipam }
      for (const name of ['macvlan', 'multus'])
        symlinkSync(join(DIST, name === 'multus' ? 'bridge' : name), join(bin, name))
      writeFileSync(
        join(lists, '20-second.conflist'),
        JSON.stringify({ cniVersion: '1.0.0', name: 'second', plugins: [second] }),
      )
      const multus = {
        cniVersion: '0.3.1',
        name: 'multus-cni-network',
        type: 'multus',
        clusterNetwork: '10-flannel.conflist',
      }
      writeFileSync(join(lists, '00-multus.conf'), JSON.stringify(multus))
      const call = (command: string) =>
        plugin('macvlan', { command, conf: second, containerId, netns: pod, ifname: 'net1', path: bin }, node.ns)
      const added = await call('ADD')
      assert.equal(added.status, 0, added.stdout)
      await isClean(fixture)
      assert.deepEqual((await doctor(fixture)).notMade, [])
      const { state, findings } = (await fixture.agent.status()) ?? {}
      assert.deepEqual([state, findings], ['ready', []])
      await fixture.agent.stop()
      await isClean(fixture)
      assert.equal((await call('DEL')).status, 0)
    }),
  )

  it(
    'k3s, whose containerd reads other folders: finds nothing, and reads these folders by itself',
    withFixture(async (fixture) => {
      const { node, lists } = fixture
      const place = { ...fixture, isUsual: true as const }
      await beside(node.ns, containerd(fixture, lists), async () => {
        await isClean(place)
        assert.deepEqual((await doctor(place)).notMade, [])
        // The folders are those of k3s: a fault there is found.
        renameSync(join(fixture.bin, 'bridge'), join(fixture.bin, 'other'))
        assert.deepEqual(
          (await doctor(place)).findings.map(({ code }) => code),
          ['DR40'],
        )
        renameSync(join(fixture.bin, 'other'), join(fixture.bin, 'bridge'))
      })
    }),
  )

  it(
    'finds nothing without root, says which checks were not made, and why',
    withFixture(async (fixture) => {
      const dir = join(fixture.node.dir, 'nobody')
      const file = join(dir, 'plumb')
      // The folders of tests are root's alone.
      const way =
        'mount --bind "$0" /mnt/plumb; exec setpriv --reuid=65534 --regid=65534 --clear-groups /mnt/plumb "$@"'
      await sh(fixture.node.ns, `mkdir ${dir}; touch /mnt/plumb; chmod 755 /mnt`)
      writeFileSync(file, `#!/bin/sh\nexec unshare -m sh -ec '${way}' ${DIST}/plumb "$@"\n`, { mode: 0o755 })
      const { findings, made, notMade } = await doctor({ ...fixture, plumb: file })
      assert.deepEqual(findings, [])
      const whys = new Map(notMade.map(({ code, why }) => [code, why]))
      assert.match(whys.get('DR9') ?? '', /^nft -j .*Operation not permitted/)
      assert.match(whys.get('DR17') ?? '', /: the socket is for root alone; want root$/)
      assert.match(whys.get('DR43') ?? '', /^EACCES: permission denied, open '\/run\/cni\/plumb\//)
      // What anybody may read.
      assert.ok(
        ['DR4', 'DR5', 'DR20'].every((code) => made.includes(code)),
        made.join(' '),
      )
    }),
  )
})
