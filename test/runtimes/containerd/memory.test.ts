// lane: peers
// Tests plugins, called by a containerd that may not make memory executable.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { DIST } from '../../support/cnitool.ts'
import { remains } from '../../support/container-leftovers.ts'
import { onContainerd } from '../../support/containerd.ts'
import { ping, type Row, until } from '../../support/harness.ts'
import { skip } from '../../support/skip.ts'
import { BY_KERNEL, noSystemd } from '../../support/without-executable-memory.ts'

const DUAL: Row = JSON.parse(readFileSync(join(import.meta.dir, '../../../conf/dual-stack.conflist'), 'utf8'))

describe('plumb as the network of a containerd that may not make memory executable', () => {
  it('in a unit of systemd with MemoryDenyWriteExecute=yes a pod gets its addresses, answers, and is removed', function () {
    const why = noSystemd()
    if (why) skip(this, why)
    return aPodLives('unit').call(this)
  })

  it('by PR_SET_MDWE, which a newer systemd sets for MemoryDenyWriteExecute=yes, the same', async function () {
    if ((await execa(BY_KERNEL[0] as string, [...BY_KERNEL.slice(1), '/bin/true'], { reject: false })).exitCode === 77)
      skip(this, 'this kernel has no PR_SET_MDWE (Linux 6.3)')
    return aPodLives('kernel').call(this)
  })
})

function aPodLives(withoutExecutableMemory: 'unit' | 'kernel'): (this: Mocha.Context) => Promise<void> {
  const { dir, plugins, seen } = witness()
  return onContainerd(
    { conf: { ...DUAL, plugins }, bin: dir, withoutExecutableMemory },
    async ({ node, containerd }) => {
      const pod = await containerd.run('pod')
      assert.deepEqual(pod.ips, ['10.37.0.2', 'fd00:37::2'])
      const [eth0] = await pod.ns.json('address', 'show', 'eth0')
      assert.ok(eth0?.['addr_info'].some(({ local }: Row) => local === '10.37.0.2'))
      for (const address of pod.ips) assert.ok(await until(() => ping(node, address)), address)
      await containerd.away(pod.id)
      assert.deepEqual([await containerd.list(), await remains(node, 'up0')], [[], []])
      for (const verb of ['ADD', 'DEL'])
        assert.match(seen(verb), /^bridge\n.*this process may not make memory executable/s, verb)
    },
  )
}

/**
 * A folder of the plugins, in which `witness` gives out the addresses: it is a child of plumb's bridge and inherits its
 * limits. It writes down what its parent is called and what Bun's program says under these limits, and becomes
 * host-local.
 */
function witness(): {
  readonly dir: string
  readonly plugins: readonly Row[]
  readonly seen: (verb: string) => string
} {
  const dir = mkdtempSync('/run/witness-')
  const script = `#!/bin/sh
cat /proc/$PPID/comm >${dir}/seen.$CNI_COMMAND
${DIST}/plumb install --bin-dir ${dir}/none --state-dir ${dir}/none >>${dir}/seen.$CNI_COMMAND 2>&1 </dev/null
exec ${DIST}/host-local
`
  writeFileSync(join(dir, 'witness'), script, { mode: 0o755 })
  for (const name of ['bridge', 'portmap', 'loopback']) symlinkSync(join(DIST, name), join(dir, name))
  const [bridge, ...others] = DUAL['plugins']
  return {
    dir,
    plugins: [{ ...bridge, ipam: { ...bridge.ipam, type: 'witness' } }, ...others],
    seen: (verb) => readFileSync(join(dir, `seen.${verb}`), 'utf8'),
  }
}
