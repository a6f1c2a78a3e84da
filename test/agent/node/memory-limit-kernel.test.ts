// lane: long
// Tests agent/node/memory-limit.ts with a real memory limit, and a cluster that does not fit into it.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'
import { until } from '../../support/harness.ts'
import { API, onKube } from '../../support/kube-nodes.ts'
import { administered, type KubeServer, kubeServer } from '../../support/kube-server.ts'
import type { Node } from '../../support/nodes.ts'
import { skip } from '../../support/skip.ts'

const [MI, PODS, PAGE] = [1024 ** 2, 150_000, 100]
const LIMIT = 140
const NETWORK = { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }
/** Outside of the sandbox there is one tree for all. */
const GROUP = `/sys/fs/cgroup/memory/plumb-test-${crypto.randomUUID()}`

describe('the memory limit of the agent', () => {
  before(function () {
    if (!existsSync('/sys/fs/cgroup/memory/memory.limit_in_bytes')) skip(this, 'no memory cgroup of version 1')
    try {
      mkdirSync(GROUP)
      writeFileSync(`${GROUP}/memory.limit_in_bytes`, `${LIMIT * MI}`)
    } catch (cause) {
      skip(this, `no memory cgroup can be made: ${(cause as Error).message}`)
    }
  })
  after(async () => {
    if (existsSync(GROUP)) await until(() => removed(), 10_000)
  })

  let server: KubeServer
  const sentence = new RegExp(
    `The agent's memory limit is ${LIMIT}Mi, and \\d+Mi are in use after (\\d+) of 150\\d{3} objects of the cluster.*: at the limit the kernel kills the agent; run .*MemoryMax=(\\d+)M`,
  )

  it(
    'that is too small for the cluster is in log and status, with what is needed, before the kernel kills the agent',
    onKube(
      1,
      { network: NETWORK, podCidrs: () => ['10.244.1.0/24'] },
      async () => {
        server = await kubeServer(API.v4)
        server.fault = podsOf(() => PODS)
        return { ...administered(server), away: () => {}, back: () => {} }
      },
      async ([node]) => {
        const one = node as Node
        const into = ['sh', '-ec', `echo $$ >${GROUP}/cgroup.procs; exec "$@"`, 'sh']
        const agent = one.agentBy(into, '--network-policy=kubernetes')
        const seen = new Set<string>()
        let code: number | undefined
        void agent.ended.then((end) => {
          code = end
        })
        // It is killed, or listing takes the server of this test so long.
        await until(async () => {
          const status = await agent.status()
          for (const text of [...(status?.reasons ?? []), ...(status?.degraded ?? [])]) seen.add(text)
          return code !== undefined
        }, 100_000).catch(() => undefined)
        const [said, read = '', proposed = ''] = sentence.exec(agent.log()) ?? assert.fail(`${code}: ${agent.log()}`)
        assert.ok(Number(read) > 0 && Number(proposed) > LIMIT, said)
        assert.ok(
          [...seen].some((text) => sentence.test(text)),
          [...seen].join('\n'),
        )
      },
    ),
  ).timeout(150_000)
})

// Answers lists of pods as kube-apiserver does that has so many, without holding them.
function podsOf(count: () => number): NonNullable<KubeServer['fault']> {
  return ({ method, url }) => {
    if (method !== 'GET' || url.pathname !== '/api/v1/pods' || url.searchParams.has('watch')) return undefined
    const from = Number(url.searchParams.get('continue') ?? 0)
    const [to, all] = [Math.min(from + PAGE, count()), count()]
    const items = Array.from({ length: to - from }, (_, i) => podNo(from + i))
    const more = to < all ? { continue: `${to}`, remainingItemCount: all - to } : {}
    return Response.json({ kind: 'PodList', apiVersion: 'v1', metadata: { resourceVersion: '1', ...more }, items })
  }
}

function podNo(n: number): object {
  const [a, b, c] = [(n >> 16) & 255, (n >> 8) & 255, n & 255]
  const labels = { app: `app-${n % 5000}`, 'pod-template-hash': n.toString(36), tier: `tier-${n % 7}` }
  return {
    metadata: { name: `pod-${n}`, namespace: `team-${n % 300}`, uid: `u-${n}`, resourceVersion: '1', labels },
    spec: { nodeName: `node-${n % 5000}`, containers: [{ name: 'c', image: 'registry/app:1' }] },
    status: { phase: 'Running', podIP: `10.${a}.${b}.${c}`, podIPs: [{ ip: `10.${a}.${b}.${c}` }] },
  }
}

function removed(): boolean {
  try {
    // Tools of an agent that was killed.
    for (const pid of readFileSync(`${GROUP}/cgroup.procs`, 'utf8').split('\n').filter(Boolean))
      process.kill(Number(pid), 'SIGKILL')
    rmdirSync(GROUP)
    return true
  } catch {
    return false
  }
}
