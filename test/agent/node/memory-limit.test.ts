// lane: quick
// Tests agent/node/memory-limit.ts. The groups are folders of this test: no machine has both versions.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { MemoryJudge, memoryNow } from '../../../agent/node/memory-limit.ts'

const MI = 1024 ** 2
const NONE = '9223372036854771712'
const [V2, V1] = ['cgroup2 cgroup rw,nsdelegate', 'cgroup cgroup rw,memory']

describe('memoryNow()', () => {
  const roots: string[] = []
  afterEach(() => {
    for (const root of roots.splice(0)) rmSync(root, { recursive: true })
  })
  /** A machine: the lines of /proc/self/cgroup, what is mounted where, and the files of the groups. */
  function machine(groups: string, top: string, type: string, files: Readonly<Record<string, string>>): string {
    const root = mkdtempSync(join(tmpdir(), 'memory-'))
    roots.push(root)
    const write = (path: string, text: string) => {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), text)
    }
    write('proc/self/cgroup', groups)
    write(
      'proc/self/mountinfo',
      `24 1 8:1 / / rw - ext4 /dev/vda rw\n35 31 0:32 ${top} /sys/fs/cgroup rw,relatime - ${type}\n`,
    )
    for (const [path, text] of Object.entries(files)) write(`sys/fs/cgroup/${path}`, `${text}\n`)
    return root
  }
  const v2 = (dir: string, limit: string, used: number, cache = 0) => ({
    [`${dir}memory.max`]: limit,
    [`${dir}memory.current`]: `${used}`,
    [`${dir}memory.stat`]: `anon ${used - cache}\nfile ${cache}\ninactive_anon 7\nactive_file ${cache / 2}\ninactive_file ${cache / 2}`,
  })

  it('reads version 2, without pages of files that are in no use; the group with the least room counts, also one above', () => {
    const own = 'kubepods/pod1/agent/'
    const tree = {
      ...v2(own, `${256 * MI}`, 200 * MI, 60 * MI),
      ...v2('kubepods/pod1/', 'max', 300 * MI),
      ...v2('kubepods/', `${900 * MI}`, 850 * MI),
    }
    assert.deepEqual(memoryNow(machine('0::/kubepods/pod1/agent\n', '/', V2, tree)), {
      limit: 900 * MI,
      used: 850 * MI,
    })
    const alone = v2(own, `${256 * MI}`, 200 * MI, 60 * MI)
    assert.deepEqual(memoryNow(machine('0::/kubepods/pod1/agent\n', '/', V2, alone)), {
      limit: 256 * MI,
      used: 140 * MI,
    })
  })

  it('reads version 2 in a container, whose own group is the root or is what is mounted', () => {
    const tree = v2('', `${256 * MI}`, 100 * MI)
    for (const [path, top] of [
      ['/', '/'],
      ['/kubepods/pod1/agent', '/kubepods/pod1/agent'],
      ['/../other', '/../..'],
    ] as const)
      assert.deepEqual(memoryNow(machine(`0::${path}\n`, top, V2, tree)), { limit: 256 * MI, used: 100 * MI }, path)
  })

  it('reads version 1 beside an empty version 2', () => {
    const groups = '9:name=systemd:/\n4:cpuset,memory:/a/b\n0::/\n'
    const tree = {
      'memory.limit_in_bytes': NONE,
      'a/b/memory.limit_in_bytes': `${64 * MI}`,
      'a/b/memory.usage_in_bytes': `${60 * MI}`,
      'a/b/memory.stat': `active_file 1\ntotal_inactive_file ${10 * MI}\ntotal_active_file ${5 * MI}`,
    }
    assert.deepEqual(memoryNow(machine(groups, '/', V1, tree)), { limit: 64 * MI, used: 45 * MI })
  })

  it('without a limit there is none, and without /proc nobody can tell', () => {
    assert.equal(memoryNow(machine('0::/\n', '/', V2, v2('', 'max', 9))), undefined)
    assert.equal(memoryNow(machine('4:memory:/\n', '/', V1, { 'memory.limit_in_bytes': NONE })), undefined)
    assert.throws(() => memoryNow('/nowhere'), /ENOENT/)
  })
})

describe('MemoryJudge', () => {
  const limit = 256 * MI
  const idle = { read: 0, left: 0 }

  it('says nothing while there is room, also with files in the cache and many objects to come', () => {
    const judge = new MemoryJudge(true)
    for (const used of [60, 120, 200]) assert.equal(judge.look({ limit, used: used * MI }, idle), undefined)
    const next = new MemoryJudge(true)
    assert.equal(next.look({ limit, used: 60 * MI }, { read: 0, left: 20_000 }), undefined)
    assert.equal(next.look({ limit, used: 90 * MI }, { read: 10_000, left: 10_000 }), undefined)
  })

  it('foresees from the objects that came what those to come need, names it, and proposes a limit that holds it', () => {
    const judge = new MemoryJudge(true)
    assert.equal(judge.look({ limit, used: 60 * MI }, { read: 0, left: 150_000 }), undefined)
    const text = judge.look({ limit, used: 135 * MI }, { read: 25_000, left: 125_000 })
    assert.equal(
      text,
      "The agent's memory limit is 256Mi, and 135Mi are in use after 25000 of 150000 objects of the cluster, which need at least 510Mi: at the limit the kernel kills the agent; run helm upgrade plumb conf/chart --namespace plumb --reset-then-reuse-values --set resources.limits.memory=768Mi",
    )
    // The same while the proposal is, and while a forecast comes and goes.
    assert.equal(judge.look({ limit, used: 150 * MI }, { read: 30_000, left: 120_000 }), text)
    assert.equal(judge.look({ limit, used: 120 * MI }, { read: 60_000, left: 90_000 }), text)
    assert.equal(judge.look({ limit, used: 140 * MI }, idle), undefined)
  })

  it('says so when the limit is nearly reached, until there is room again, and names the unit where there is no chart', () => {
    const judge = new MemoryJudge(false)
    const text = judge.look({ limit, used: 210 * MI }, idle)
    assert.match(
      text ?? '',
      /limit is 256Mi, and 210Mi are in use by .*; run systemctl set-property plumb-agent\.service MemoryMax=384M$/,
    )
    assert.equal(judge.look({ limit, used: 190 * MI }, idle), text)
    assert.equal(judge.look({ limit, used: 170 * MI }, idle), undefined)
    assert.equal(judge.look({ limit, used: 190 * MI }, idle), undefined)
  })
})
