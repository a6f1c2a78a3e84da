import assert from 'node:assert/strict'
import { chmodSync, copyFileSync, mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Finished, inNamespaces } from '../harness.ts'
import { containerId } from '../network.ts'
import { type Started, type Subject, start } from './subject.ts'

const DIST = join(import.meta.dir, '../../../dist')
const TOOLS = ['/usr/sbin/ip', '/usr/sbin/bridge', '/usr/sbin/nft', '/usr/sbin/tc']

/**
 * Defines the tests of SIGKILL: after each child that ADD and DEL wait for, in turn; what then puts things right is the
 * next ADD, DEL or GC.
 */
export function testKill(subject: Subject): void {
  for (const [after, repair] of Object.entries(REPAIRS)) {
    it(
      `SIGKILL after each child of ADD, then ${after}: works, and nothing is left`,
      inNamespaces(['node', 'pod', 'other'], async (all, test) => {
        test.timeout(60_000)
        const started = await start(subject, all)
        await eachChild(async (nth) => {
          const { status } = await killed(nth, subject.type, 'ADD', started)
          if (after !== 'ADD') await repair(started)
          else if (status !== 0)
            await subject.works(started.pod, await started.net.add(started.pod), started.node, started.net.conf)
          if (after === 'ADD') await started.net.del(started.pod)
          await started.unchanged()
          return status === 0
        })
      }),
    )

    it(
      `SIGKILL after each child of DEL, then ${after}: works, and nothing is left`,
      inNamespaces(['node', 'pod', 'other'], async (all, test) => {
        test.timeout(60_000)
        const started = await start(subject, all)
        await eachChild(async (nth) => {
          await started.net.add(started.pod)
          const { status } = await killed(nth, subject.type, 'DEL', started)
          if (after === 'ADD' && status !== 0) await started.net.del(started.pod)
          if (after === 'ADD')
            await subject.works(started.pod, await started.net.add(started.pod), started.node, started.net.conf)
          await (after === 'ADD' ? REPAIRS.DEL : repair)(started)
          await started.unchanged()
          return status === 0
        })
      }),
    )
  }
}

const REPAIRS: Record<'ADD' | 'DEL' | 'GC', (started: Started) => Promise<void>> = {
  ADD: async () => {},
  DEL: ({ net, pod }) => net.del(pod),
  GC: ({ net, other }) => net.gc(other),
}

/** Until the call came to its end, which it did when it was to die after more children than it has. */
async function eachChild(work: (nth: number) => Promise<boolean>): Promise<void> {
  for (let nth = 1; !(await work(nth)); nth++) assert.ok(nth < 20, 'it never ends')
}

/**
 * A call whose process is killed the moment its nth child has ended: in a mount namespace where each tool is the real
 * one, and a shot after it.
 */
async function killed(nth: number, type: string, command: string, { node, pod, net }: Started): Promise<Finished> {
  const dir = mkdtempSync('/run/kill-')
  const mounts = TOOLS.map((tool) => {
    const name = tool.slice(tool.lastIndexOf('/') + 1)
    copyFileSync(tool, join(dir, `real-${name}`))
    writeFileSync(
      join(dir, name),
      `#!/bin/sh
cat >'${dir}/in'.$$
'${dir}/real-${name}' "$@" <'${dir}/in'.$$
status=$?
# One that was started ahead and never given any work is no child to die after.
[ -s '${dir}/in'.$$ ] && echo "${name} $*" >>'${dir}/ended' && [ "$(wc -l <'${dir}/ended')" -eq ${nth} ] && kill -9 $PPID
exit $status
`,
    )
    chmodSync(join(dir, name), 0o755)
    return `mount --bind '${dir}/${name}' ${tool}`
  })
  const script = `${mounts.join(' && ')} && exec '${join(DIST, type)}'`
  const done = await node.exec(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', script], {
    stdin: JSON.stringify(net.conf),
    env: {
      CNI_COMMAND: command,
      CNI_CONTAINERID: containerId(pod),
      CNI_IFNAME: 'eth0',
      CNI_NETNS: pod.path,
      CNI_PATH: DIST,
    },
  })
  // Either it was shot, or it did its work: a third end would be a failure that the shot caused.
  assert.ok(
    done.status === 0 || done.status === -1 || done.status === 137,
    `${done.status} ${done.stdout}${done.stderr}`,
  )
  return done
}
