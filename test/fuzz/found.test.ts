// lane: quick
// Tests whatever reads input: each test is an input that the fuzzer found. They stay together, whatever they read.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { namesIn } from '../../agent/dhcp/names.ts'
import { decodeLease } from '../../agent/lease/lease.ts'
import { parseNetworkConf } from '../../agent/lease/network-configuration.ts'
import { readSettings } from '../../agent/settings/read.ts'
import { keysBelow } from '../../agent/store/etcd/keys.ts'
import { View } from '../../agent/store/etcd/view.ts'
import { fuse } from '../../cli/fuse.ts'
import type { Io } from '../../lib/cni/call.ts'
import { decode } from '../../lib/cni/versions.ts'
import { note, partName, readPart } from '../../lib/journal/journal.ts'
import { remove } from '../../lib/os/files.ts'
import { listen } from '../../lib/os/http.ts'
import { holderOf } from '../../lib/pools/reservations.ts'
import { parseJson } from '../../lib/runtime/network-list.ts'
import { shown } from '../../lib/text/errors.ts'
import type { Cidr } from '../../lib/text/ip.ts'
import { subnetEntries } from '../../lib/text/subnet-env.ts'
import { parse } from '../../lib/text/values.ts'
import { readCall } from '../../lib/verbs/serve.ts'
import loopback from '../../plugins/loopback.ts'
import { skip } from '../support/skip.ts'
import { exchanged } from './exchange.ts'
import { spent } from './share.ts'

const DEEP = `${'['.repeat(100_000)}${']'.repeat(100_000)}`
// No longer than a store's value may be.
const LESS = `${'['.repeat(10_000)}${']'.repeat(10_000)}`
const BLANKS = ' '.repeat(200_000)

/** Far less than a pattern that goes back and forth takes, and far more than one that does not. */
function soon<T>(work: () => T): T {
  const started = process.cpuUsage()
  const done = work()
  const { user, system } = process.cpuUsage(started)
  assert.ok(user + system < 3_000_000, `${(user + system) / 1000} ms`)
  return done
}

describe('what the fuzzer found', () => {
  it('a lease whose data are nested ten thousand deep is refused: comparing it would end the stack of every agent', () => {
    assert.throws(
      () => decodeLease({}, `{"PublicIP":"192.0.2.2","BackendType":"vxlan","BackendData":${LESS}}`),
      /^ValueError: Cannot read BackendData: it is nested too deep; want an object such as/,
    )
  })

  it('a value of a store that is longer than any honest one is refused before it is parsed: 600 MB of it took the agent 6 GB', () => {
    const long = `{"PublicIP":"192.0.2.2","a":${DEEP}}`
    assert.throws(() => decodeLease({}, long), {
      message:
        'Cannot read the lease: it has more than 65536 characters; want JSON such as {"PublicIP":"172.30.0.2",…}',
    })
    assert.throws(() => parseNetworkConf(long), {
      message:
        'Cannot read the network\'s configuration: it has more than 65536 characters; want JSON such as {"Network": "10.244.0.0/16"}',
    })
    const view = new View(keysBelow('/n'))
    soon(() =>
      view.apply(
        [
          {
            type: 0,
            kv: {
              key: Buffer.from('/n/subnets/10.1.2.0-24'),
              value: Buffer.alloc(600_000_000, long),
              createRevision: 1n,
              modRevision: 1n,
              lease: 0n,
            },
          },
        ] as never,
        1n,
      ),
    )
    assert.deepEqual(view.snapshot(), {
      leases: [],
      unreadable: [
        {
          key: '10.1.2.0-24',
          why: 'Cannot read the lease: it has more than 65536 characters; want JSON such as {"PublicIP":"172.30.0.2",…}',
        },
      ],
    })
  })

  it('of a value of hundreds of megabytes a message shows the beginning, and makes no copy', () => {
    assert.match(
      soon(() => shown('\t\r'.repeat(50_000_000))),
      /^"(\\t\\r)+…"$/,
    )
  })

  it('a network configuration whose backend is nested so is refused: it is compared with the store’s every minute', () => {
    assert.throws(
      () => parseNetworkConf(`{"Network":"10.1.0.0/16","Backend":{"a":${LESS}}}`),
      /^ValueError: Cannot read Backend: it is nested too deep; want an object such as/,
    )
  })

  it('a lease’s type and a node’s name that are not words are not taken: plumb leases would write them on a terminal', () => {
    assert.throws(
      () => decodeLease({}, '{"PublicIP":"192.0.2.2","BackendType":"\\u001b[2J"}'),
      /^ValueError: Cannot read BackendType "\\u001b\[2J": want a word such as vxlan$/,
    )
    const view = new View(keysBelow('/n'))
    const kv = (key: string, value: string) => ({
      type: 0,
      kv: { key: Buffer.from(`/n/${key}`), value: Buffer.from(value), createRevision: 1n, modRevision: 1n, lease: 0n },
    })
    view.apply(
      [kv('subnets/10.1.2.0-24', '{"PublicIP":"192.0.2.2"}'), kv('plumb/nodes/\u001b[2J', '10.1.2.0-24')] as never,
      1n,
    )
    assert.deepEqual(
      view.snapshot().leases.map(({ node }) => node),
      [undefined],
    )
  })

  it('long runs of blanks in subnet.env and in a reservation take no time', () => {
    assert.equal(soon(() => subnetEntries(`FLANNEL_MTU=1450${BLANKS}x\n${BLANKS}=${BLANKS}\nA=1`)).get('A')?.value, '1')
    const dir = mkdtempSync(join(tmpdir(), 'plumb-hostile-'))
    try {
      writeFileSync(join(dir, '10.1.0.9'), `c1${BLANKS}x\r\n${BLANKS}eth0`)
      assert.equal(soon(() => holderOf({ dir, own: dir }, '10.1.0.9'))?.ifname, 'eth0')
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  it('names of a DHCP server that point to each other come to no flood', () => {
    const label = Uint8Array.of(63, ...Buffer.from('x'.repeat(63)))
    // Each pointer is a name of its own, and leads to one of 60 labels.
    const target = Uint8Array.from([...Array.from({ length: 60 }, () => [...label]).flat(), 0])
    const pointers = Uint8Array.from(Array.from({ length: 10_000 }, () => [0xc0, 0]).flat())
    assert.deepEqual(
      soon(() => namesIn(Uint8Array.from([...target, ...pointers]))),
      [],
    )
    const short = Uint8Array.of(3, 0x6f, 0x72, 0x67, 0)
    assert.equal(soon(() => namesIn(Uint8Array.from([...short, ...pointers]))).length, 64)
  })

  it('JSON and YAML that are nested too deep are said to be', () => {
    assert.throws(() => parseJson(DEEP, 'the list'), /^ValueError: Cannot read the list: it is nested too deep$/)
    assert.throws(
      () => readSettings([], {}, { path: 'agent.yaml', text: `iface: ${DEEP.slice(0, 60_000)}` }, 'node-a'),
      /^ValueError: Cannot read agent\.yaml: it is nested too deep$/,
    )
  })

  it('a request of 100 kB to the agent is refused before it is taken apart, which took it seconds', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'plumb-hostile-'))
    const server = listen({ unix: `${dir}/socket` }, () => ({ status: 200, type: 'text/plain', body: '' }))
    try {
      const before = process.cpuUsage()
      assert.match(
        await exchanged(
          `${dir}/socket`,
          Buffer.from(`GET / HTTP/1.1\r\nHost: localhost${' '.repeat(100_000)}x\r\n\r\n`),
        ),
        /^HTTP\/1\.1 431 /,
      )
      assert.ok(spent(before) < 1000, `${spent(before)} ms`)
    } finally {
      server.stop()
      rmSync(dir, { recursive: true })
    }
  })

  it('a configuration of 40 MB is refused before it is parsed: 600 MB of it took 9 GB of memory', () => {
    const io = {
      env: { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_NETNS: '/run/netns/x', CNI_IFNAME: 'eth0' },
      stdin: () => `{"a":${' '.repeat(40_000_000)}1}`,
    }
    assert.throws(() => soon(() => readCall(loopback, 'ADD', io as unknown as Io)), {
      code: 6,
      message: 'Cannot read the configuration: it has 40000007 characters',
      details: 'want 33554432 at most',
    })
  })

  it('a previous result that is nested deep is refused, from a runtime or a pool: written with its indentation, 600 kB of it took 40 GB', () => {
    const io = {
      env: { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c1', CNI_NETNS: '/run/netns/x', CNI_IFNAME: 'eth0' },
      stdin: () => `{"cniVersion":"1.0.0","name":"n","prevResult":{"dns":{"nameservers":[${DEEP}]}}}`,
    }
    assert.throws(() => soon(() => readCall(loopback, 'ADD', io as unknown as Io)), {
      code: 6,
      message: 'Cannot read the configuration: it is nested more than 100 deep',
    })
    assert.throws(
      () => soon(() => decode({ ips: [], dns: { nameservers: [JSON.parse(DEEP)] } }, '1.0.0', 'the result of pool')),
      { message: 'Cannot read the result of pool: it is nested too deep' },
    )
  })

  it('a name of 50 kB is told in part', () => {
    const { changes } = fuse({
      plugins: [{ type: 'ptp' }, { type: 'portmap', capabilities: { ['constructor'.repeat(5000)]: true } }],
    })
    assert.ok(changes.join().length < 500, changes.join().slice(0, 500))
  })

  it('a file that cannot be, below what is no folder or by a name that is too long, is removed already: its record must not stay for ever', () => {
    for (const path of ['/dev/null/c1_eth0.json', `/run/${'x'.repeat(256)}`]) remove(path)
  })

  it('a settings file of megabytes is refused before it is parsed: some take the parser minutes and gigabytes', () => {
    assert.throws(
      () => soon(() => readSettings([], {}, { path: 'agent.yaml', text: '!!x '.repeat(1_000_000) }, 'node-a')),
      /^ValueError: Cannot read agent\.yaml: want a file of at most 65536 characters, not 4000000$/,
    )
  })

  it('an entry of the journal that is not as it was written is none: lines for tools are made of it', function () {
    if (process.env['PLUMB_SANDBOX'] !== '1')
      skip(this, 'the journal lies below /run: it needs root, for a /run of its own')
    const at = {
      network: parse.network('net'),
      containerId: parse.containerId('c1'),
      ifname: parse.ifname('eth0'),
      args: new Map<string, string>(),
      path: [],
    }
    const [part, path] = [partName('portmap', at), '/run/cni/plumb/attachments/net:c1:eth0']
    note(at, { portmap: [{ kind: 'addr', ns: 'host', dev: parse.ifname('eth0'), cidr: '10.1.0.2/24' as Cidr }] })
    assert.equal(readPart(part)?.own.length, 1)
    writeFileSync(path, readFileSync(path, 'utf8').replace('10.1.0.2/24', '10.1.0.2/24\\nlink delete dev lo'))
    assert.equal(readPart(part), undefined)
  })

  it('a plugin whose type every object has as a key is not taken into another one', () => {
    const list = { plugins: [{ type: 'bridge' }, { type: 'constructor' }] }
    assert.deepEqual(fuse(list).list, list)
  })
})
