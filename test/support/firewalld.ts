// needs: firewalld
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { FIREWALLD } from '../../scripts/firewalld.ts'
import { present } from '../../scripts/packages.ts'
import { type Namespace, until } from './harness.ts'

const BUS = '/run/dbus'
// A bus on which root may say anything to anybody.
const RULES = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=${BUS}/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/><allow user="*"/></policy></busconfig>`

/** What a node lacks for a firewalld of its own; empty when it has all. */
export function missing(): string {
  if (!existsSync(FIREWALLD)) return `firewalld was not unpacked in ${FIREWALLD}`
  return ['dbus-daemon', 'dbus-send', '/usr/lib/python3/dist-packages/dbus', '/usr/lib/python3/dist-packages/gi']
    .filter((one) => !present(one))
    .join(', ')
}

/** A firewalld that runs on a node, until it is stopped or the test ends. */
export interface Firewalld {
  /** Whether a zone has a source. */
  has(zone: string, source: string): Promise<boolean>
  /** As `firewall-cmd --reload`: what was set at run time is gone. */
  reload(): Promise<void>
  stop(): Promise<void>
}

const started: Bun.Subprocess[] = []
afterEach(async () => {
  for (const one of started.splice(0)) await end(one)
  rmSync(BUS, { recursive: true, force: true })
})

/** Starts a bus and the real firewalld on a node, which then rejects what no zone lets through. */
export async function firewalld(node: Namespace): Promise<Firewalld> {
  const config = mkdtempSync('/run/firewalld-')
  mkdirSync(BUS)
  writeFileSync(join(config, 'bus.conf'), RULES)
  writeFileSync(join(config, 'firewalld.conf'), 'DefaultZone=block\nFirewallBackend=nftables\nIPv6_rpfilter=no\n')
  const inNode = ['nsenter', `--net=${node.path}`, '--']
  started.push(
    Bun.spawn(['dbus-daemon', `--config-file=${config}/bus.conf`, '--nofork'], {
      stdio: ['ignore', 'ignore', 'inherit'],
    }),
  )
  await until(() => existsSync(`${BUS}/system_bus_socket`))
  const env = { ...process.env, PYTHONPATH: join(FIREWALLD, 'usr/lib/python3/dist-packages') }
  const paths = [
    '--system-config',
    config,
    '--default-config',
    join(FIREWALLD, 'usr/lib/firewalld'),
    '--log-file',
    join(config, 'log'),
  ]
  const daemon = Bun.spawn(
    [...inNode, '/usr/bin/python3', join(FIREWALLD, 'usr/sbin/firewalld'), '--nofork', '--nopid', ...paths],
    { env, stdio: ['ignore', 'ignore', 'inherit'] },
  )
  started.push(daemon)
  const ask = (method: string, ...args: string[]) =>
    node.exec([
      'dbus-send',
      '--system',
      '--print-reply',
      '--dest=org.fedoraproject.FirewallD1',
      '/org/fedoraproject/FirewallD1',
      `org.fedoraproject.FirewallD1.${method}`,
      ...args.map((one) => `string:${one}`),
    ])
  await until(async () => assert.equal((await ask('getDefaultZone')).status, 0) === undefined, 20_000)
  return {
    has: async (zone, source) => /boolean true/.test((await ask('zone.querySource', zone, source)).stdout),
    reload: async () => assert.equal((await ask('reload')).status, 0),
    stop: () => end(daemon),
  }
}

async function end(child: Bun.Subprocess): Promise<void> {
  child.kill('SIGTERM')
  await child.exited
}
