// lane: long
// Tests agent/doctor beside other firewalls: firewalld itself, and the chains of ufw.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { FIREWALLD } from '../../../scripts/firewalld.ts'
import { causes, doctor, type Fixture, isClean, isFoundAlone, sh, UFW, withFixture } from '../../support/doctor.ts'
import { firewalld, missing } from '../../support/firewalld.ts'
import { until } from '../../support/harness.ts'
import { skip } from '../../support/skip.ts'

const LATE = 45_000

/** A folder with the real firewall-cmd. */
function firewallCmd({ node }: Fixture): void {
  const dir = join(node.dir, 'tools')
  mkdirSync(dir, { recursive: true })
  const start = `PYTHONPATH=${FIREWALLD}/usr/lib/python3/dist-packages exec /usr/bin/python3 ${FIREWALLD}/usr/bin/firewall-cmd "$@"`
  writeFileSync(join(dir, 'firewall-cmd'), `#!/bin/sh\n${start}\n`, { mode: 0o755 })
}

async function found(fixture: Fixture): Promise<string[]> {
  return causes(await doctor(fixture)).map(({ code, text }) => `${code} ${text}`)
}

describe('plumb doctor beside other firewalls', () => {
  it('DR10: finds that firewalld rejects packets of pods and closes the port of the tunnel; its commands mend it for good, and nothing is found beside firewalld then', async function (this: Mocha.Context) {
    const lacks = missing()
    if (lacks !== '') skip(this, `no firewalld: ${lacks}`)
    await withFixture(async (fixture) => {
      firewallCmd(fixture)
      const daemon = await firewalld(fixture.node.ns)
      await isFoundAlone(fixture, {
        code: 'DR10',
        what: 'firewalld with the zone block',
        make: () => undefined,
        says: /^firewalld rejects packets from 10\.244\.\d+\.0\/24 to 10\.244\.0\.0\/16: no zone that lets them pass has 10\.244\.0\.0\/16: pods do not reach pods of other nodes$/,
      })
      await isClean(fixture)
      await daemon.reload()
      await isClean(fixture)
      await daemon.stop()
    }).call(this)
  })

  it(
    'DR11: finds that ufw drops what pods forward, and closes the port of the tunnel',
    withFixture(async (fixture) => {
      const { ns } = fixture.node
      await sh(ns, UFW)
      await isClean(fixture)
      await sh(ns, 'iptables -P INPUT DROP')
      await until(async () => (await found(fixture)).length > 0, LATE)
      assert.deepEqual(await found(fixture), [
        'DR11 ufw closes UDP port 8472, the port of the tunnel: packets of pods of other nodes do not arrive',
      ])
      // What `ufw allow 8472/udp` adds.
      await sh(ns, 'iptables -A ufw-user-input -p udp --dport 8472 -j ACCEPT')
      await isClean(fixture)
      await fixture.agent.stop('SIGKILL')
      await sh(ns, 'iptables -P FORWARD DROP; iptables -F FORWARD; iptables -A FORWARD -j ufw-user-forward')
      const [first, ...more] = await found(fixture)
      assert.match(
        first ?? '',
        /^DR11 ufw drops packets from 10\.244\.\d+\.0\/24 to 10\.244\.0\.0\/16 \(DEFAULT_FORWARD_POLICY="DROP"\): pods do not reach pods of other nodes$/,
      )
      assert.deepEqual(more, [])
      // What `ufw route allow` adds.
      await sh(
        ns,
        'iptables -A ufw-user-forward -s 10.244.0.0/16 -j ACCEPT; iptables -A ufw-user-forward -d 10.244.0.0/16 -j ACCEPT',
      )
      await isClean(fixture)
    }),
  )

  it('DR15: finds the program that deletes a table of the agent again and again', async function (this: Mocha.Context) {
    const lacks = missing()
    if (lacks !== '') skip(this, `no Python module nftables: ${lacks}`)
    await withFixture(async (fixture) => {
      const { ns } = fixture.node
      const { stdout } = await ns.exec(['nft', 'list', 'tables'])
      const [, table = ''] = /^table inet (plumb_agent\S*)$/m.exec(stdout) ?? []
      const loop = `import nftables, time
rules = nftables.Nftables()
while True:
  rules.cmd('delete table inet ${table}')
  time.sleep(0.05)`
      const env = { ...process.env, PYTHONPATH: join(FIREWALLD, 'usr/lib/python3/dist-packages') }
      const enter = ['nsenter', `--net=${ns.path}`, '--', '/usr/bin/python3', '-c', loop]
      const child = Bun.spawn(enter, { env, stdio: ['ignore', 'ignore', 'ignore'] })
      try {
        await isFoundAlone(fixture, {
          code: 'DR15',
          what: 'a loop deletes a table',
          make: () => undefined,
          says: /^python3 \(pid \d+\) undoes nft table plumb_agent\S* again and again: the agent puts it right after a pause, and until then packets are lost or pass without the rules$/,
        })
        await isClean(fixture)
      } finally {
        child.kill('SIGKILL')
        await child.exited
      }
    }).call(this)
  })
})
