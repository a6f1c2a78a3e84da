// lane: netns
// Tests lib/journal.
import assert from 'node:assert/strict'
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Attachment } from '../../../lib/cni/plugin.ts'
import { attachmentsWith, begin, LINK, note, partName } from '../../../lib/journal/journal.ts'
import { reindex } from '../../../lib/journal/reindex.ts'
import { holdersOf, share, sweep, thingsOf } from '../../../lib/journal/shared.ts'
import { parseCidr } from '../../../lib/text/ip.ts'
import type { PartName } from '../../../lib/text/owner.ts'
import { parse } from '../../../lib/text/values.ts'
import { inNamespaces, type Namespace } from '../../support/harness.ts'
import { entries, JOURNAL } from '../../support/journal.ts'
import { bridgeConf, containerId, network, traces } from '../../support/network.ts'

const PLUMB = join(import.meta.dir, '../../../dist/plumb')
const LIB = join(import.meta.dir, '../../../lib')
const SHARED = `${JOURNAL}/shared`
const CONF = {
  isDefaultGateway: true,
  ipMasq: true,
  firewall: {},
  portmap: {},
  runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80 }] },
}

describe('the journal', () => {
  // The file of turns stays: this process has it open.
  beforeEach(() => {
    for (const dir of ['attachments', 'shared']) rmSync(`${JOURNAL}/${dir}`, { recursive: true, force: true })
  })

  it(
    'has one entry per attachment, complete when ADD has answered, with its addresses and what each plugin made; it goes with DEL',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = network(node, bridgeConf(CONF))
      await net.add(pod)
      await network(node, { ...net.conf, runtimeConfig: {} }).add(other)
      const [one, two] = entries().sort((a, b) => a.owner.containerId.localeCompare(b.owner.containerId))
      assert.deepEqual(
        [one?.owner, one?.unfinished, one?.ips],
        [{ network: net.conf.name, containerId: containerId(other), ifname: 'eth0' }, undefined, ['10.1.0.3']],
      )
      assert.deepEqual(
        [Object.keys(two?.parts ?? {}).sort(), two?.ips],
        [['firewall', 'link', 'masquerade', 'portmap'], ['10.1.0.2']],
      )
      assert.deepEqual(Object.keys(one?.parts ?? {}).sort(), ['firewall', 'link', 'masquerade'])
      for (const one of [pod, other]) await net.del(one)
      assert.deepEqual([entries(), traces(pod, net.conf)], [[], []])
    }),
  )

  it(
    'the index is built again out of the entries, as it was, by `plumb cni gc`; notes of attachments without an entry go',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const net = network(node, bridgeConf(CONF))
      await net.add(pod)
      await network(node, { ...net.conf, runtimeConfig: {} }).add(other)
      const before = shared()
      assert.match(before.join(), /addresses.*elements.*ports/)
      rmSync(SHARED, { recursive: true })
      await gc(node)
      assert.deepEqual(shared(), before)
      rmSync(`${JOURNAL}/attachments/${net.conf.name}:${containerId(pod)}:eth0`)
      await gc(node)
      assert.deepEqual(
        shared().filter((path) => path.includes(containerId(pod))),
        [],
      )
      assert.deepEqual(
        shared().filter((path) => path.includes(containerId(other))),
        before.filter((path) => path.includes(containerId(other))),
      )
    }),
  )

  it(
    '`plumb cni gc` beside ADDs removes no note of an attachment that began meanwhile',
    inNamespaces(['node'], async () => {
      // The sweep is at work for a while before it comes to the links, in whichever order it reads the folders.
      begin(attachment('old'))
      for (const sort of ['first', 'links', 'second']) for (let i = 0; i < 1500; i++) share(`${sort}/${i}`, part('old'))
      const sweeper = child(
        `const { sweep } = await import('${LIB}/journal/shared.ts'); for (;;) { sweep(); writeSync(1, '.') }`,
      )
      try {
        const passes = sweeper.stdout.getReader()
        await passes.read()
        for (let i = 0; i < 300; i++) {
          begin(attachment(`c${i}`))
          share('links/br0.5', part(`c${i}`))
          if (i % 20 === 0) await passes.read()
        }
        for (let i = 0; i < 2; i++) await passes.read()
        assert.equal(holdersOf('links/br0.5').length, 300)
      } finally {
        sweeper.kill('SIGKILL')
        await sweeper.exited
      }
      rmSync(`${JOURNAL}/attachments`, { recursive: true })
      sweep()
      assert.deepEqual(thingsOf('links'), [])
    }),
  )

  it(
    'who had an address is only read: the note of an ADD that is about to write its entry stays',
    inNamespaces(['node'], async () => {
      share('addresses/10.1.0.9', part('new'))
      assert.deepEqual(attachmentsWith('10.1.0.9'), [])
      assert.deepEqual(holdersOf('addresses/10.1.0.9'), [part('new')])
      begin(attachment('new'))
      note(attachment('new'), {}, [{ address: parseCidr('10.1.0.9/24') }])
      assert.deepEqual(
        attachmentsWith('10.1.0.9').map(({ owner }) => owner.containerId),
        ['new'],
      )
    }),
  )

  it(
    '`plumb cni gc` beside a DEL does not bring back the notes that the DEL has removed',
    inNamespaces(['node'], async () => {
      const deleting = child(`
        const { begin, note } = await import('${LIB}/journal/journal.ts')
        const at = { network: 'net', containerId: 'c', ifname: 'eth0' }
        begin(at)
        note(at, { masquerade: [{ kind: 'element', ns: 'host', set: 'local4', key: '10.1.0.0/24', part: 'masquerade:net:c:eth0' }] })
        writeSync(1, '.')
        await new Promise((done) => setTimeout(done, 60_000))`)
      try {
        await deleting.stdout.getReader().read()
        reindex()
        assert.deepEqual(thingsOf('elements'), [])
      } finally {
        deleting.kill('SIGKILL')
        await deleting.exited
      }
      // The call was killed, and its note is missing: now it is noted.
      reindex()
      assert.deepEqual(thingsOf('elements'), ['local4 10.1.0.0_24'])
    }),
  )
})

function attachment(containerId: string): Attachment {
  return {
    network: parse.network('net'),
    containerId: parse.containerId(containerId),
    ifname: parse.ifname('eth0'),
    args: new Map(),
  } as unknown as Attachment
}

function part(id: string): PartName {
  return partName(LINK, attachment(id))
}

/** A process of its own that runs a program with the journal. */
function child(code: string) {
  return Bun.spawn([process.execPath, '-e', `const { writeSync } = await import('node:fs')\n${code}`], {
    stdout: 'pipe',
    stderr: 'inherit',
  })
}

function shared(): string[] {
  return readdirSync(SHARED, { recursive: true }).map(String).sort()
}

async function gc(node: Namespace): Promise<void> {
  const { status, stdout, stderr } = await node.exec([PLUMB, 'cni', 'gc'])
  assert.equal(status, 0, `${stdout}${stderr}`)
}
