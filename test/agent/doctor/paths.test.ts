// lane: long
// Tests agent/doctor: what is wrong between the nodes, and with the ways of packets.
import assert from 'node:assert/strict'
import { doctor, type Fault, isClean, isFoundAlone, mend, sh, withFixture } from '../../support/doctor.ts'
import { makers } from '../../support/faults.ts'
import { until } from '../../support/harness.ts'

const LATE = 45_000

const FAULTS: readonly Fault[] = [
  {
    code: 'DR14',
    what: 'a rule of another program masquerades packets between pods',
    make: makers.masquerade,
    says: /^The chain ip nat POSTROUTING of another program masquerades packets from 10\.244\.\d+\.0\/24 to 10\.244\.0\.0\/16: pods of other nodes see the address of this node, and so do their policies$/,
  },
  {
    code: 'DR32',
    what: 'a more specific route',
    make: makers.routeToPod,
    says: /^Packets to 10\.244\.\d+\.0\/24 of n2 leave by lo: the route 10\.244\.\d+\.9\/32 dev lo: its pods are not reached$/,
  },
  {
    code: 'DR32',
    what: 'a rule before main, as a VPN has it',
    make: makers.ruleOfVpn,
    says: /^Packets to 10\.244\.\d+\.0\/24 of n2 leave by eth0: rule 5270 \(from all lookup 52\) finds 10\.244\.0\.0\/16 via 172\.30\.0\.254 dev eth0 table 52 first: its pods are not reached$/,
  },
]

describe('plumb doctor and the ways of packets', () => {
  it(
    `finds each of ${FAULTS.map(({ code }) => code).join(', ')} alone, and its commands mend it`,
    withFixture(async (fixture) => {
      for (const fault of FAULTS) {
        await fault.make(fixture)
        await isFoundAlone(fixture, fault)
        await isClean(fixture)
      }
    }),
  )

  it(
    'DR17: a firewall that drops the tunnel is named where its rule is, and there its command mends it; the other end is told which port is closed',
    withFixture(async (fixture) => {
      const { other } = fixture
      await makers.droppedTunnel(fixture)
      await until(async () => (await doctor(fixture)).hidden.some(({ code }) => code === 'DR17'), LATE)
      const { findings, hidden } = await doctor(fixture)
      assert.ok(findings.length > 0 && findings.every(({ code, text }) => code === 'DR58' && /8472/.test(text)))
      assert.ok(hidden.every(({ because }) => because === 'DR58'))
      const commands = [...new Set(findings.flatMap((one) => one.commands))]
      assert.match(commands.join(), /^nft delete rule ip filter INPUT handle \d+$/)
      await mend(fixture, commands)
      await isClean(fixture)
      await sh(other.ns, 'iptables -A INPUT -p udp --dport 8472 -j DROP')
      await until(async () => (await doctor(fixture)).findings.some(({ code }) => code === 'DR17'), LATE)
      const far = await doctor(fixture)
      assert.deepEqual(
        far.findings.map(({ code, text }) => [code, text]),
        [
          [
            'DR17',
            'Node n2 (172.30.0.2) answers, its tunnel does not; want UDP port 8472 to pass between the nodes: pods of these nodes do not reach each other',
          ],
        ],
      )
      assert.ok(far.hidden.every(({ because }) => because === 'DR17'))
      await sh(other.ns, 'iptables -D INPUT -p udp --dport 8472 -j DROP')
      await isClean(fixture)
    }),
  )

  it(
    'DR24: a cut uplink is one finding; what follows from it is hidden behind it',
    withFixture(async (fixture) => {
      await sh(fixture.hub, 'ip link set dev port1 down')
      let report = await doctor(fixture)
      await until(async () => {
        report = await doctor(fixture)
        return report.hidden.length > 0
      }, LATE).catch(() => assert.fail(JSON.stringify(report)))
      assert.deepEqual(
        report.findings.map(({ code, text }) => [code, text]),
        [['DR24', 'The uplink eth0 has no carrier: its cable or its other end is down: pods reach only this node']],
      )
      assert.deepEqual([...new Set(report.hidden.map(({ because }) => because))], ['DR24'])
      await sh(fixture.hub, 'ip link set dev port1 up')
      await isClean(fixture)
    }),
  )

  it(
    'DR19: a link between the nodes takes only smaller packets, and nobody says so: the size is found to the byte',
    withFixture(async (fixture) => {
      await sh(fixture.hub, 'ip link set dev port2 mtu 1400')
      let report = await doctor(fixture)
      await until(async () => {
        report = await doctor(fixture)
        return report.findings.some(({ code }) => code === 'DR19')
      }, LATE).catch(() => assert.fail(JSON.stringify(report)))
      assert.deepEqual(
        report.findings.map(({ code, text }) => [code, text.split(':')[0]]),
        // A bridge lets a packet have four bytes more than the MTU of the port, for a VLAN tag.
        [['DR19', 'Packets over 1354 bytes to n2 vanish; pods have 1430']],
      )
      await sh(fixture.hub, 'ip link set dev port2 mtu 1500')
      await isClean(fixture)
    }),
  )
})
