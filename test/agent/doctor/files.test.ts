// lane: long
// needs: systemd
// Tests agent/doctor: what is wrong with files of a node, its file systems and its tools.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  doctor,
  type Fault,
  type Fixture,
  isClean,
  isFoundAlone,
  sh,
  withFixture,
  writeTool,
} from '../../support/doctor.ts'
import { shimmed } from '../../support/tool-shims.ts'

const NETWORKD = '/lib/systemd/systemd-networkd'

/** Programs that were started, to be ended with the test. */
const running: Bun.Subprocess[] = []
afterEach(async () => {
  for (const child of running.splice(0)) {
    child.kill('SIGKILL')
    await child.exited
  }
})

function start({ node }: Fixture, argv: readonly string[]): Bun.Subprocess {
  const child = Bun.spawn(['nsenter', `--net=${node.ns.path}`, '--', ...argv], {
    stdio: ['ignore', 'ignore', 'ignore'],
  })
  running.push(child)
  return child
}

/** Starts systemd-networkd. `systemctl restart` and `networkctl reload` start it again, as neither is without systemd. */
function networkd(fixture: Fixture): void {
  const { node } = fixture
  for (const dir of ['links', 'leases', 'lldp']) mkdirSync(`/run/systemd/netif/${dir}`, { recursive: true })
  const child = start(fixture, [NETWORKD])
  const pid = join(node.dir, 'networkd.pid')
  writeFileSync(pid, `${child.pid}`)
  const again = [`kill $(cat ${pid}); setsid ${NETWORKD} </dev/null >/dev/null 2>&1 &`, `echo $! >${pid}`]
  writeTool(fixture, 'systemd-networkd', ...again)
  writeTool(fixture, 'networkctl', '[ "$1" = reload ] || exit 1', ...again)
}

async function isFoundAndMended(fixture: Fixture, fault: Fault): Promise<void> {
  await fault.make(fixture)
  await isFoundAlone(fixture, fault)
  await isClean(fixture)
}

describe('plumb doctor and files of a node', () => {
  it(
    'DR33, DR35: finds systemd-networkd that deletes routes of others, and a file of it that matches links of pods; DR34: NetworkManager that manages them',
    withFixture(async (fixture) => {
      assert.ok(existsSync(NETWORKD), `want ${NETWORKD} (Debian package systemd)`)
      const { node } = fixture
      networkd(fixture)
      await isFoundAndMended(fixture, {
        code: 'DR33',
        severity: 'warning',
        what: 'networkd with its own settings',
        make: () => undefined,
        says: /^systemd-networkd runs with ManageForeignRoutes=yes and ManageForeignRoutingPolicyRules=yes: each of its restarts deletes routes of pods, until the agent puts them back$/,
      })
      await isFoundAndMended(fixture, {
        code: 'DR35',
        severity: 'warning',
        what: 'DHCP at every link but one',
        make: () =>
          sh(
            node.ns,
            `mkdir -p /etc/systemd/network; printf '[Match]\\nName=* !eth*\\n\\n[Network]\\nDHCP=yes\\n' >/etc/systemd/network/10-all.network`,
          ),
        says: /^\/etc\/systemd\/network\/10-all\.network matches links of pods \(Name=\* !eth\*\): systemd-networkd configures links of pods$/,
      })
      await sh(node.ns, `cp /usr/bin/sleep ${node.dir}/NetworkManager; mkdir -p /etc/NetworkManager/conf.d`)
      start(fixture, [join(node.dir, 'NetworkManager'), '600'])
      await isFoundAndMended(fixture, {
        code: 'DR34',
        severity: 'warning',
        what: 'a program with the name of NetworkManager',
        make: () => undefined,
        says: /^NetworkManager runs, and no unmanaged-devices names interface-name:veth\*, interface-name:cni\*, interface-name:flannel\*: /,
      })
    }),
  )

  it(
    'DR37: finds a file system that is read-only; DR55: and one that is nearly full; DR16: and nft of an older version',
    withFixture(async (fixture) => {
      const { node } = fixture
      await sh(node.ns, 'mkdir -p /var/lib/cni; mount -t tmpfs -o size=4m none /var/lib/cni')
      try {
        await isClean(fixture)
        await isFoundAndMended(fixture, {
          code: 'DR37',
          what: 'a read-only file system',
          make: () => sh(node.ns, 'mount -o remount,ro /var/lib/cni'),
          says: /^Cannot write to \/var\/lib\/cni\/networks, because the file system \/var\/lib\/cni is read-only \(EROFS\): no pod can be attached$/,
          isOfMounts: true,
        })
        await sh(node.ns, 'head -c 3600000 /dev/zero >/var/lib/cni/log')
        await isFoundAlone(fixture, {
          code: 'DR55',
          severity: 'warning',
          what: 'a file system that is nearly full',
          make: () => undefined,
          says: /^The file system \/var\/lib\/cni of \/var\/lib\/cni\/networks has \d+ kB left: soon no pod can be attached$/,
        })
        // The command tells what takes the room.
        await sh(node.ns, 'rm /var/lib/cni/log')
        await isClean(fixture)
      } finally {
        await sh(node.ns, 'umount /var/lib/cni')
      }
      const script = 'if [ -e $dir/old ] && [ "$1" = --version ]; then echo "nftables v0.9.8 (E.D.S.)"; exit 0; fi'
      const { file, dir } = shimmed('plumb', { nft: `${script}\n"$real" "$@" <"$input"` })
      const older = { ...fixture, plumb: file }
      await isClean(older)
      writeTool(fixture, 'apt-get', `rm ${dir}/old`)
      await isFoundAndMended(older, {
        code: 'DR16',
        what: 'nft is older',
        make: () => writeFileSync(join(dir, 'old'), ''),
        says: /^nft has the version 0\.9\.8; want 1\.0 or later: plumb cannot make its rules$/,
      })
      assert.deepEqual((await doctor(older)).notMade, [])
    }),
  )
})
