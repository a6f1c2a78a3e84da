// lane: netns
// Tests agent/node and agent/parts.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { ping, until } from '../../support/harness.ts'
import { type Agent, fileStore, inCluster, type Node, subnetEnv } from '../../support/nodes.ts'

const DIST = join(import.meta.dir, '../../../dist')
const PLUMB = join(DIST, 'plumb')
const VXLAN = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:244::/48', Backend: { Type: 'vxlan' } }

/** How a disk fails, and how it is back. */
const FAILURES: Readonly<
  Record<string, { readonly said: RegExp; fail(dir: string): Promise<void>; mend(dir: string): Promise<void> }>
> = {
  full: {
    said: /ENOSPC/,
    fail: (dir) => sh(`dd if=/dev/zero of=${dir}/filler bs=4k 2>/dev/null || true`),
    mend: (dir) => sh(`rm ${dir}/filler`),
  },
  'read-only': {
    said: /EROFS/,
    fail: (dir) => sh(`mount -o remount,ro ${dir}`),
    mend: (dir) => sh(`mount -o remount,rw ${dir}`),
  },
}

describe('plumb agent, when a disk fails', () => {
  for (const [what, { said, fail, mend }] of Object.entries(FAILURES)) {
    for (const [file, option] of [
      ['subnet.env', 'subnet-file'],
      ['lease.json', 'state-dir'],
    ] as const)
      it(
        `${what} where ${file} is to be: peers are reached, status says why it is not ready, once in the log; ready when the disk is back`,
        inCluster(
          2,
          (cluster) => fileStore(cluster, VXLAN),
          async ({ nodes }) => {
            const [one, two] = nodes as [Node, Node]
            await two.agent().ready(30_000)
            await onDisk(one, async (disk) => {
              await fail(disk)
              const agent = one.agent(`--${option}`, option === 'subnet-file' ? join(disk, file) : disk)
              await reaches(one, two)
              await until(async () =>
                (await agent.status())?.reasons.some(
                  (reason) =>
                    new RegExp(`Cannot write ${disk}/${file.replace('.', '[-\\w]*.')}: `).test(reason) &&
                    said.test(reason),
                ),
              )
              assert.match(await agent.readyz(), said)
              assert.equal(isThere(disk, file), false)
              // Two more tries, at least.
              const { steps } = await known(agent)
              await until(async () => (await known(agent)).steps.count > steps.count + 2)
              assert.equal(
                agent
                  .log()
                  .split('\n')
                  .filter((line) => said.test(line)).length,
                1,
                agent.log(),
              )
              await mend(disk)
              await agent.ready(5000)
              assert.ok(isThere(disk, file))
              await agent.stop()
            })
          },
        ),
      )

    it(
      `${what} at a boot: the agent starts, peers are reached; subnet.env is as before when the disk is back`,
      inCluster(
        2,
        (cluster) => fileStore(cluster, VXLAN),
        async ({ nodes }) => {
          const [one, two] = nodes as [Node, Node]
          await two.agent().ready(30_000)
          await onDisk(one, async (disk) => {
            const path = join(disk, 'subnet.env')
            // A full disk takes a socket; one that is read-only takes none, and there is nothing to answer on.
            const options = ['--subnet-file', path, ...(what === 'full' ? ['--socket', join(disk, 'agent.sock')] : [])]
            const first = one.agent(...options)
            await first.ready(30_000)
            const had = readFileSync(path, 'utf8')
            await first.stop('SIGKILL')
            rmSync(path)
            await one.ns.ip('link', 'del', 'flannel.1')
            await fail(disk)
            const again = one.agent(...options)
            await reaches(one, two)
            assert.match(await again.readyz(), said)
            await mend(disk)
            await again.ready(5000)
            assert.equal(readFileSync(path, 'utf8'), had)
            await again.stop()
          })
        },
      ),
    )

    it(
      `${what} where the network is installed: not ready with that reason, and there when the disk is back`,
      inCluster(
        1,
        (cluster) => [...fileStore(cluster, VXLAN), '--install-cni'],
        async ({ nodes }) => {
          const [one] = nodes as [Node]
          await onDisk(one, async (disk) => {
            await fail(disk)
            const agent = one.agent('--cni-conf-dir', disk)
            await until(async () => (await agent.status())?.reasons.some((reason) => said.test(reason)), 10_000)
            assert.ok(subnetEnv(one))
            await mend(disk)
            await agent.ready(5000)
            assert.ok(existsSync(join(disk, '10-flannel.conflist')))
            await agent.stop()
          })
        },
      ),
    )
  }
})

describe('plumb agent, when plugins cannot write', () => {
  for (const [what, { said, fail, mend }] of Object.entries(FAILURES))
    for (const [folder, top] of [
      ['/run/cni/plumb', '/run/cni'],
      ['/var/lib/cni/networks', '/var/lib/cni'],
    ] as const)
      it(
        `${what} where ${folder} is: the node is not ready until the disk is back; readyz, status, doctor and plumb cni status say the same`,
        inCluster(
          1,
          (cluster) => fileStore(cluster, VXLAN),
          async ({ nodes }, test) => {
            test.timeout(120_000)
            const [one] = nodes as [Node]
            mkdirSync(top, { recursive: true })
            await sh(`mount -t tmpfs -o size=4m disk ${top}`)
            try {
              const agent = one.agent()
              await agent.ready(20_000)
              assert.equal(await agent.readyz(), '200 ready\n')
              await fail(top)
              const why = what === 'full' ? 'full (ENOSPC)' : 'read-only (EROFS)'
              const sentence = `Cannot write to ${folder}, because the file system ${top} is ${why}: no pod can be attached`
              await until(async () => (await agent.readyz()).startsWith(`503 ${sentence}`), 30_000)
              assert.match(await statusOf(one), new RegExp(`^n1 is not ready:\n {2}${sentence.replace(/[()]/g, '.')}`))
              assert.deepEqual(await faults(one), [`DR37 ${sentence}`])
              const answer = await cniStatus(one)
              assert.match(answer, /^error 50: .*Cannot write to .*: no pod can be attached$/m)
              assert.match(answer, said)
              await mend(top)
              await until(async () => (await agent.readyz()) === '200 ready\n', 30_000)
              assert.deepEqual([await faults(one), await cniStatus(one)], [[], ''])
            } finally {
              await sh(`umount --lazy ${top}`)
            }
          },
        ),
      )

  it(
    'a node whose journal has little room is degraded before no pod can be attached',
    inCluster(
      1,
      (cluster) => fileStore(cluster, VXLAN),
      async ({ nodes }, test) => {
        test.timeout(60_000)
        const [one] = nodes as [Node]
        mkdirSync('/run/cni', { recursive: true })
        await sh('mount -t tmpfs -o size=512k disk /run/cni')
        try {
          const agent = one.agent()
          await agent.ready(20_000)
          assert.match(
            await agent.readyz(),
            /^200 degraded: The file system \/run\/cni of \/run\/cni\/plumb has \d+ kB left: soon no pod can be attached;/,
          )
          assert.equal(await cniStatus(one), '')
        } finally {
          await sh('umount --lazy /run/cni')
        }
      },
    ),
  )
})

describe('plumb agent, when the shared folder is unmounted', () => {
  it(
    'peers stay, the node is ready and degraded, nothing is written below the mount point; it goes on when the folder is back',
    inCluster(
      2,
      ({ dir }) => ['--store', 'file', '--file-store-dir', join(dir, 'shared')],
      async ({ nodes, dir }) => {
        const [one, two] = nodes as [Node, Node]
        const shared = join(dir, 'shared')
        mkdirSync(shared)
        await sh(`mount -t tmpfs shared ${shared}`)
        try {
          writeFileSync(join(shared, 'config'), JSON.stringify(VXLAN))
          const agent = one.agent()
          await two.agent().ready(30_000)
          await reaches(one, two)
          await sh(
            `mkdir ${dir}/elsewhere; mount --make-private ${shared}; mount --bind ${shared} ${dir}/elsewhere; umount ${shared}`,
          )
          await until(
            async () =>
              (await agent.status())?.degraded.some((text) =>
                /^the store is away, going on with what is known: There is no network configuration at/.test(text),
              ),
            20_000,
          )
          const status = await agent.status()
          assert.deepEqual([status?.ready, status?.store.connected, status?.peers.length], [true, false, 1])
          // It is repaired, too.
          await one.ns.ip('link', 'del', 'flannel.1')
          await reaches(one, two)
          assert.deepEqual(readdirSync(shared), [])
          await sh(`mount --bind ${dir}/elsewhere ${shared}`)
          await until(async () => (await agent.status())?.state === 'ready', 20_000)
          await agent.stop()
        } finally {
          await sh(`umount --lazy ${dir}/elsewhere ${shared} || true; umount --lazy ${shared} || true`)
        }
      },
    ),
  )
})

/** A small disk of its own for a node. */
async function onDisk({ dir }: Node, work: (disk: string) => Promise<void>): Promise<void> {
  const disk = join(dir, 'disk')
  mkdirSync(disk)
  await sh(`mount -t tmpfs -o size=64k disk ${disk}`)
  try {
    await work(disk)
  } finally {
    await sh(`umount --lazy ${disk}`)
  }
}

// The agent's own among those of the node has its name.
function isThere(disk: string, file: string): boolean {
  return readdirSync(disk).some((name) => name.replace(/-\w+/, '') === file)
}

// Its tunnel's own address answers, and the way back leads through ours.
async function reaches(one: Node, two: Node): Promise<void> {
  const address = subnetEnv(two)?.['FLANNEL_SUBNET']?.replace(/\.1\/24$/, '.0') as string
  await until(() => ping(one.ns, address), 15_000)
}

async function statusOf({ ns, dir }: Node): Promise<string> {
  return (await ns.exec([PLUMB, 'status', '--socket', join(dir, 'agent.sock')])).stdout
}

// What the checks of disks find, without the commands.
async function faults({ ns, dir }: Node): Promise<string[]> {
  const places = ['--socket', join(dir, 'agent.sock'), '--subnet-file', join(dir, 'subnet.env')]
  const { stdout } = await ns.exec([PLUMB, 'doctor', 'DR37', 'DR55', '--json', ...places])
  return JSON.parse(stdout).findings.map(({ code, text }: { code: string; text: string }) => `${code} ${text}`)
}

// What `plumb cni status` refuses, or nothing.
async function cniStatus({ ns, dir }: Node): Promise<string> {
  const lists = join(dir, 'lists')
  mkdirSync(lists, { recursive: true })
  const bridge = { type: 'bridge', ipam: { type: 'host-local', subnet: '10.1.0.0/24' } }
  writeFileSync(join(lists, '10-net.conflist'), JSON.stringify({ cniVersion: '1.1.0', name: 'net', plugins: [bridge] }))
  const { status, stderr } = await ns.exec([PLUMB, 'cni', 'status', 'net', '--conf-dir', lists, '--bin-dir', DIST])
  assert.equal(status, stderr === '' ? 0 : 1, stderr)
  return stderr
}

async function known(agent: Agent) {
  const status = await agent.status()
  assert.ok(status)
  return status
}

async function sh(script: string): Promise<void> {
  await execa('sh', ['-ec', script])
}
