// lane: netns
// Tests lib/wiring.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Answer, inNamespaces, type Namespace, plugin, type Row } from '../../support/harness.ts'

const DIST = join(import.meta.dir, '../../../dist')
const IPAM = { type: 'static', addresses: [{ address: '10.1.0.2/24' }] }
const CASES: Readonly<Record<string, object>> = {
  bridge: { bridge: 'br0', isGateway: true, ipam: IPAM },
  ptp: { ipam: IPAM },
  macvlan: { master: 'lan0', ipam: IPAM },
}

describe('MACs of two nodes', () => {
  let dir: string
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-machines-'))
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  for (const [what, keys] of Object.entries(CASES))
    it(
      `${what}: pods of one container id have different MACs on two machines, and links of one name; CHECK and DEL hold when the machine's id changes`,
      inNamespaces(['node1', 'node2', 'pod1', 'pod2'], async ({ node1, node2, pod1, pod2 }) => {
        const conf: Row = { cniVersion: '1.0.0', name: 'lan', type: what, ...keys }
        const call = (command: string, node: Namespace, netns: Namespace, machine: string, more = {}) =>
          plugin(
            conf['type'],
            { command, conf: { ...conf, ...more }, netns, file: onMachine(dir, conf['type'], machine) },
            node,
          )
        const added: Row[] = []
        for (const [node, pod, machine] of [
          [node1, pod1, 'a'],
          [node2, pod2, 'b'],
        ] as const) {
          if (conf['master']) await node.ip('link', 'add', 'lan0', 'up', 'type', 'veth', 'peer', 'name', 'lan1')
          added.push(works(await call('ADD', node, pod, machine.repeat(32))).result)
        }
        const [one = [], two = []] = added.map(({ interfaces }) => interfaces as Row[])
        assert.deepEqual(names(one), names(two))
        const macs = one.map(({ mac }) => mac)
        assert.ok(macs.length > 0 && macs.every(Boolean), JSON.stringify(one))
        assert.deepEqual(
          two.filter(({ mac }) => macs.includes(mac)),
          [],
        )
        for (const machine of ['c'.repeat(32), ''])
          works(await call('CHECK', node1, pod1, machine, { prevResult: added[0] }))
        works(await call('DEL', node1, pod1, ''))
        assert.deepEqual(
          (await pod1.json('link')).map(({ ifname }) => ifname),
          ['lo'],
        )
      }),
    )

  it(
    'a machine without an id has that of its boot',
    inNamespaces(['node', 'pod1', 'pod2'], async ({ node, pod1, pod2 }) => {
      const conf = { cniVersion: '1.0.0', name: 'lan', type: 'ptp', ipam: IPAM }
      const macs: string[] = []
      for (const [netns, id] of [
        [pod1, ''],
        [pod2, 'uninitialized'],
      ] as const) {
        const { result } = works(
          await plugin('ptp', { command: 'ADD', conf, netns, file: onMachine(dir, 'ptp', id) }, node),
        )
        macs.push(result['interfaces'][1].mac)
        works(await plugin('ptp', { command: 'DEL', conf, netns }, node))
      }
      assert.equal(macs[0], macs[1])
      // The same id as everywhere else would do for nobody.
      const { result } = works(
        await plugin('ptp', { command: 'ADD', conf, netns: pod1, file: onMachine(dir, 'ptp', '0'.repeat(32)) }, node),
      )
      assert.notEqual(result['interfaces'][1].mac, macs[0])
    }),
  )
})

/** A program that runs a plugin where /etc/machine-id holds this text. */
function onMachine(dir: string, type: string, machine: string): string {
  const [text, file] = [join(dir, `${machine}.id`), join(dir, `${type}-${machine}`)]
  writeFileSync(text, machine && `${machine}\n`)
  writeFileSync(
    file,
    `#!/bin/sh\nexec unshare --mount sh -c 'mount --bind ${text} /etc/machine-id && exec ${DIST}/${type}'\n`,
    { mode: 0o755 },
  )
  return file
}

function works(answer: Answer): Answer {
  assert.equal(answer.status, 0, answer.stdout + answer.stderr)
  return answer
}

function names(interfaces: readonly Row[]): string[] {
  return interfaces.map(({ name }) => name)
}
