// lane: storm
// Tests lib/verbs, lib/journal and lib/pools under storms of calls.
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync } from 'node:fs'
import { inNamespaces, type Namespace, type Row, snapshot, until } from '../../../support/harness.ts'
import { mappings } from '../../../support/host-ports.ts'
import { settled } from '../../../support/network.ts'
import { call, crowd, netns, quiet, spread, type Told } from './calls.ts'

const WIDTH = 16
/** As many as a bridge of Linux can have (net/bridge/br_private.h, BR_MAX_PORTS, where number 0 is none). */
const BRIDGE_PORTS = 1023

describe('a node filled to the last', () => {
  for (const [subnet, room] of [
    ['10.1.0.0/24', 253],
    ['10.1.0.0/23', 509],
  ] as const)
    it(
      `address of ${subnet}: ${room} pods, the next is refused with the reason and changes nothing; drained, it can be filled again`,
      inNamespaces(['node'], async ({ node }, test) => {
        test.timeout(1_800_000)
        const full = filling(node, subnet)
        for (const round of [1, 2]) {
          const { given, longest } = await full.fill(room)
          assert.equal(new Set(given).size, room)
          const before = await full.look()
          const { ok, error } = await full.add('beyond')
          assert.deepEqual(
            [ok, error.code, error.msg],
            [false, 11, `no IP addresses available in range set: ${range(subnet)}`],
          )
          assert.match(
            error.details,
            new RegExp(`^${room} of ${room} are in use; delete pods, widen the range, or run GC`),
          )
          assert.deepEqual(await full.look(), before)
          // The one that becomes free is the one that is given.
          await full.del('pod7')
          const again = await full.add('pod7')
          assert.ok(again.ok, again.error.msg)
          await full.drain(room)
          process.stdout.write(
            `storm: ${subnet} filled with ${room} pods, round ${round}: ADD ms ${JSON.stringify(longest)}\n`,
          )
        }
      }),
    )

  it(
    `port of a bridge: ${BRIDGE_PORTS} pods, the next is refused with the reason, changes nothing and keeps no address; drained, it can be filled again`,
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(3_000_000)
      const full = filling(node, '10.1.0.0/16')
      const { longest } = await full.fill(BRIDGE_PORTS)
      const before = await full.look()
      const { ok, error } = await full.add('beyond')
      assert.equal(ok, false)
      assert.equal(error.code, 11)
      assert.match(`${error.msg} ${error.details}`, /bridge cni0\b.*1023 ports/)
      assert.deepEqual(await full.look(), before)
      await full.drain(BRIDGE_PORTS)
      await full.fill(20)
      await full.drain(20)
      process.stdout.write(`storm: a bridge filled with ${BRIDGE_PORTS} pods: ADD ms ${JSON.stringify(longest)}\n`)
    }),
  )
})

describe('24 pods with 32 host ports each', () => {
  it(
    'at once: each port leads to its pod; no other gets one of them; all at once again, and nothing is left',
    inNamespaces(['node'], async ({ node }, test) => {
      test.timeout(600_000)
      const PODS = 24
      const EACH = 32
      const full = filling(node, '10.1.0.0/24')
      const conf = (n: number) => ({
        cniVersion: '1.0.0',
        name: 'full',
        type: 'portmap',
        runtimeConfig: {
          portMappings: Array.from({ length: EACH }, (_, i) => ({
            hostPort: 20_000 + n * EACH + i,
            containerPort: 8000 + i,
            protocol: i % 2 ? 'udp' : 'tcp',
          })),
        },
      })
      await quiet(node)
      const first = await full.made('pod0')
      assert.ok((await call(node, 'ADD', { ...conf(0), prevResult: first.result }, full.who('pod0'))).ok)
      assert.ok((await call(node, 'DEL', conf(0), full.who('pod0'))).ok)
      await full.del('pod0')
      const before = await settled(() => snapshot(node))
      const all = Array.from({ length: PODS }, (_, n) => n)
      for (const _ of [1, 2]) {
        const addresses = await Promise.all(
          all.map(async (n) => {
            const { result } = await full.made(`pod${n}`)
            const { ok, error } = await call(node, 'ADD', { ...conf(n), prevResult: result }, full.who(`pod${n}`))
            assert.ok(ok, `${error.msg} ${error.details}`)
            return addressOf(result)
          }),
        )
        const wanted = all.flatMap((n) =>
          Array.from(
            { length: EACH },
            (_, i) => `${i % 2 ? 'udp' : 'tcp'} . ${20_000 + n * EACH + i} ${addresses[n]} . ${8000 + i}`,
          ),
        )
        assert.deepEqual(await mappings(node), wanted.sort())
        const { result } = await full.made('beyond')
        const { error } = await call(node, 'ADD', { ...conf(3), prevResult: result }, full.who('beyond'))
        assert.deepEqual(
          [error.code, error.msg],
          [7, `Cannot give host port 20096/tcp to this container: container ${full.who('pod3').id} has it`],
        )
        await Promise.all(
          [...all.map((n) => `pod${n}`), 'beyond'].map(async (id, n) => {
            assert.ok((await call(node, 'DEL', conf(n), full.who(id))).ok)
            await full.del(id)
          }),
        )
        await until(async () => assert.equal(await snapshot(node), before) === undefined, 30_000)
        assert.deepEqual(full.reserved(), [])
      }
    }),
  )
})

let serial = 0

/** Pods of one bridge, by name. */
function filling(node: Namespace, subnet: string) {
  const dataDir = mkdtempSync('/run/ipam-')
  const conf = {
    cniVersion: '1.0.0',
    name: 'full',
    type: 'bridge',
    bridge: 'cni0',
    isGateway: true,
    ipMasq: true,
    ipam: { type: 'host-local', dataDir, ranges: [[{ subnet }]] },
  }
  const n = ++serial
  const who = (pod: string) => ({ id: `${pod}-${n}`, netns: `/run/netns/${pod}-${n}`, ifname: 'eth0' })
  const names = (count: number) => Array.from({ length: count }, (_, n) => `pod${n}`)
  const reserved = () => readdirSync(`${dataDir}/full`).filter((name) => /^\d+\.\d+\.\d+\.\d+$/.test(name))
  async function add(id: string): Promise<Told> {
    await netns('add', who(id).netns)
    const told = await call(node, 'ADD', conf, who(id))
    if (!told.ok) await netns('delete', who(id).netns)
    return told
  }
  async function made(id: string): Promise<Told> {
    const told = await add(id)
    assert.ok(told.ok, `${id}: ${told.error.msg} ${told.error.details}`)
    return told
  }
  async function del(id: string): Promise<void> {
    const told = await call(node, 'DEL', conf, who(id))
    assert.ok(told.ok, `${id}: ${told.error.msg} ${told.error.details}`)
    await netns('delete', who(id).netns)
  }
  return {
    who,
    add,
    made,
    del,
    reserved,
    /** What an ADD changes: links, rules, reservations, and what plugins note for themselves. */
    async look() {
      const links = (await node.json('link')).map(({ ifname }) => ifname)
      return [
        links,
        (await node.exec(['nft', '--stateless', 'list', 'ruleset'])).stdout,
        reserved(),
        readdirSync('/run/cni/plumb', { recursive: true }).map(String).sort(),
      ]
    },
    async fill(count: number) {
      const [given, ms]: [string[], number[]] = [[], []]
      await crowd(WIDTH, names(count), async (id) => {
        const told = await made(id)
        given.push(addressOf(told.result))
        ms.push(told.ms)
      })
      return { given, longest: spread(ms) }
    },
    async drain(count: number) {
      await crowd(WIDTH, names(count), del)
      assert.deepEqual(reserved(), [])
      await until(async () => (await node.json('link', 'show', 'type', 'veth')).length === 0, 60_000)
    },
  }
}

function addressOf(result: Row): string {
  return result['ips'][0].address.split('/')[0]
}

function range(subnet: string): string {
  return subnet.endsWith('/24') ? '10.1.0.1-10.1.0.254' : '10.1.0.1-10.1.1.254'
}
