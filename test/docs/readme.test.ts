// lane: netns
// Tests the commands in README.md as one session on one node.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Status } from '../../agent/state/status.ts'
import { until } from '../support/harness.ts'
import { inCluster, type Node } from '../support/nodes.ts'

interface Report {
  readonly findings: readonly { readonly code: string; readonly text: string }[]
}
const ROOT = join(import.meta.dir, '../..')
const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const PLUMB = '/opt/cni/bin/plumb'
/** What only a cluster, a checkout without packages or a registry can run. */
const ELSEWHERE = /^(npm|helm|kubectl|ctr) .*$/gm

describe('README.md as one session', () => {
  it(
    'from top to bottom the node is ready in the end, the log promises nothing before, and a pod gets an address; what plumb made goes',
    inCluster(
      1,
      () => [],
      async ({ nodes: [node] }, test) => {
        test.timeout(120_000)
        const { ns } = node as Node
        const sh = async (script: string) => {
          const { status, stdout, stderr } = await ns.exec(['sh', '-eux'], { stdin: script, cwd: ROOT })
          assert.equal(status, 0, `${script}\n${stdout}${stderr}`)
          return stdout
        }
        const links = () => sh('ip -o link | cut -d" " -f2 | grep -v docker')
        const before = await links()
        let agent: ReturnType<typeof Bun.spawn> | undefined
        let log = ''
        try {
          for (const block of blocks()) {
            const [, start, words = ''] = /^(\/opt\/cni\/bin\/plumb (agent .*)) &$/m.exec(block) ?? []
            if (start === undefined) {
              await sh(block)
              continue
            }
            await sh(block.slice(0, block.indexOf(start)))
            agent = Bun.spawn(['nsenter', `--net=${ns.path}`, '--', PLUMB, ...words.split(' ')], {
              stdin: 'ignore',
              stdout: 'ignore',
              stderr: 'pipe',
              env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
            })
            void (async (pipe) => {
              for await (const text of pipe.pipeThrough(new TextDecoderStream())) log += text
            })(agent.stderr as ReadableStream<Uint8Array<ArrayBuffer>>)
            let last: Status | undefined
            await until(async () => {
              const { status, stdout } = await ns.exec([PLUMB, 'status', '--json'])
              last = status === 2 || stdout === '' ? undefined : (JSON.parse(stdout) as Status)
              return last?.ready
            }, 45_000).catch(() => assert.fail(`${JSON.stringify([last?.reasons, last?.degraded])}\n${log}`))
            assert.deepEqual([last?.reasons, last?.degraded], [[], []])
          }
          assert.ok(agent, 'README.md starts an agent')
          assert.doesNotMatch(log, /pods can start/)
          await sh(
            `ip netns add web; ${PLUMB} cni add cbr0 /run/netns/web; ip netns exec web ip -4 route get 192.0.2.1`,
          )
          assert.match(await sh(`${PLUMB} status`), /^\S+ is ready$/m)
          // It makes its checks at once, where the agent takes its turn.
          const { findings } = JSON.parse((await ns.exec([PLUMB, 'doctor', '--json'])).stdout) as Report
          assert.deepEqual(
            findings.map(({ code, text }) => `${code}: ${text}`),
            [],
          )
          await sh(`${PLUMB} cni del cbr0 /run/netns/web; ip netns delete web`)
        } finally {
          agent?.kill()
          await agent?.exited
        }
        await sh(`${PLUMB} agent cleanup --store=file; ${PLUMB} uninstall --purge`)
        assert.equal(await links(), before)
      },
    ),
  )
})

// The blocks that run, and the one that starts an agent with what follows it.
function blocks(): string[] {
  const fenced = [...README.matchAll(/^```(sh|text)\n([\s\S]*?)^```$/gm)]
  return fenced.flatMap(([, language, text = '']) =>
    language === 'sh' || /^\/opt\/cni\/bin\/plumb /m.test(text) ? text.replace(ELSEWHERE, '') : [],
  )
}
