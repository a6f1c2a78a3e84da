// lane: quick
// Tests agent/node.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  forget,
  type NodeSubnet,
  readSubnetEnv,
  remember,
  remembered,
  writeSubnetEnv,
} from '../../../agent/node/files.ts'
import { WireguardKeys } from '../../../agent/node/wireguard-keys.ts'
import { parseCidr } from '../../../lib/text/ip.ts'
import { parseSubnetEnv } from '../../../lib/text/subnet-env.ts'
import { parse } from '../../../lib/text/values.ts'
import fc from '../../support/properties.ts'

const cidr = parseCidr
const V4: NodeSubnet = {
  network: { v4: cidr('10.5.0.0/16') },
  subnet: { v4: cidr('10.5.16.0/24') },
  mtu: 1450,
  ipMasq: true,
}
const V6: NodeSubnet = {
  network: { v6: cidr('fd00:5::/48') },
  subnet: { v6: cidr('fd00:5:0:7::/64') },
  mtu: 1430,
  ipMasq: false,
}
const DUAL: NodeSubnet = {
  network: { ...V4.network, ...V6.network },
  subnet: { ...V4.subnet, ...V6.subnet },
  mtu: 1430,
  ipMasq: true,
}

describe('the files of the node', () => {
  let dir = ''
  let path = ''
  beforeEach(() => {
    dir = mkdtempSync(join(tmpdir(), 'plumb-files-'))
    path = join(dir, 'run/flannel/subnet.env')
  })
  afterEach(() => rmSync(dir, { recursive: true }))

  const texts: Readonly<Record<string, readonly [NodeSubnet, string]>> = {
    IPv4: [V4, 'FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.16.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n'],
    IPv6: [
      V6,
      'FLANNEL_IPV6_NETWORK=fd00:5::/48\nFLANNEL_IPV6_SUBNET=fd00:5:0:7::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n',
    ],
    'both families': [
      DUAL,
      'FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.16.1/24\nFLANNEL_IPV6_NETWORK=fd00:5::/48\nFLANNEL_IPV6_SUBNET=fd00:5:0:7::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=true\n',
    ],
  }
  for (const [what, [node, text]] of Object.entries(texts)) {
    it(`writeSubnetEnv() writes for ${what} what flanneld writes, byte by byte, and readSubnetEnv() reads it back`, () => {
      assert.equal(writeSubnetEnv(path, node), true)
      assert.deepEqual(
        [readFileSync(path, 'utf8'), statSync(path).mode & 0o777, readdirSync(join(dir, 'run/flannel'))],
        [text, 0o644, ['subnet.env']],
      )
      assert.deepEqual(readSubnetEnv(path), { network: node.network, subnet: node.subnet })
      assert.deepEqual(parseSubnetEnv(text, path), {
        networks: Object.values(node.network),
        subnets: Object.values(node.subnet),
        mtu: node.mtu,
        ipMasq: node.ipMasq,
      })
    })
  }

  it('writeSubnetEnv() writes only what is new, in one step: a reader finds the old text or the new one', () => {
    assert.equal(writeSubnetEnv(path, V4), true)
    const before = statSync(path)
    assert.equal(writeSubnetEnv(path, V4), false)
    assert.deepEqual([statSync(path).ino, statSync(path).mtimeMs], [before.ino, before.mtimeMs])
    // What a writer left that was killed is in nobody's way.
    writeFileSync(join(dir, 'run/flannel/.subnet.env.draft'), 'FLANNEL_NET')
    assert.equal(writeSubnetEnv(path, { ...V4, mtu: 1400 }), true)
    assert.notEqual(statSync(path).ino, before.ino)
    assert.deepEqual(readdirSync(join(dir, 'run/flannel')), ['subnet.env'])
  })

  it('readSubnetEnv() passes over what it cannot read, and takes no family that is named twice, as flanneld', () => {
    const cases: readonly (readonly [string, object, object])[] = [
      ['', {}, {}],
      ['FLANNEL_SUBNET=not-a-cidr\n', {}, {}],
      ['FLANNEL_SUBNET=10.244.1.0/24,not-a-cidr,10.244.2.0/24\n', {}, {}],
      ['FLANNEL_SUBNET=10.244.1.5/24,not-a-cidr\n', {}, { v4: '10.244.1.0/24' }],
      [
        'FLANNEL_NETWORK=10.1.0.0/16,10.2.0.0/16\nFLANNEL_SUBNET=10.1.1.1/24\nFLANNEL_IPV6_SUBNET=fd00::1/64',
        {},
        { v4: '10.1.1.0/24', v6: 'fd00::/64' },
      ],
      ['FLANNEL_SUBNET=fd00::1/64\nFLANNEL_IPV6_SUBNET=10.1.1.1/24\n', {}, {}],
      ['export FLANNEL_NETWORK="10.1.0.0/16" \nFLANNEL_SUBNET=\n', { v4: '10.1.0.0/16' }, {}],
    ]
    mkdirSync(join(dir, 'run/flannel'), { recursive: true })
    for (const [text, network, subnet] of cases) {
      writeFileSync(path, text)
      assert.deepEqual(readSubnetEnv(path), { network, subnet }, text)
    }
    assert.deepEqual(readSubnetEnv(join(dir, 'none')), { network: {}, subnet: {} })
  })

  it('readSubnetEnv() takes any text', () => {
    mkdirSync(join(dir, 'run/flannel'), { recursive: true })
    const piece = fc.oneof(
      fc.string(),
      fc.constantFrom(
        'FLANNEL_SUBNET=',
        'FLANNEL_IPV6_SUBNET=',
        'export ',
        '\n',
        ',',
        '"',
        '10.1.0.0/16',
        'fd00::/64',
        '=',
      ),
    )
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        writeFileSync(path, pieces.join(''))
        readSubnetEnv(path)
      }),
    )
  })

  it('remembered() gives at boot what remember() was told, to the same node alone, and nothing for a file that is torn', () => {
    const state = join(dir, 'lib/plumb')
    assert.equal(remembered(state, 'a'), undefined)
    for (const node of [V4, V6, DUAL]) {
      assert.equal(remember(state, 'a', node), true)
      assert.equal(remember(state, 'a', node), false)
      assert.deepEqual(remembered(state, 'a'), node)
    }
    assert.equal(remembered(state, 'b'), undefined)
    const lease = join(state, 'lease.json')
    const whole = readFileSync(lease, 'utf8')
    for (const text of [
      '',
      whole.slice(0, 40),
      '[]',
      whole.replace('1430', '"x"'),
      whole.replace('10.5.16.0/24', '10.5.16.0'),
    ]) {
      writeFileSync(lease, text)
      assert.equal(remembered(state, 'a'), undefined)
    }
  })

  it('forget() removes what was remembered, and subnet.env unless it is of somebody else by now', () => {
    const state = join(dir, 'lib/plumb')
    assert.deepEqual(forget(state, 'a', path), [])
    writeSubnetEnv(path, V4)
    remember(state, 'a', V4)
    // As a kill leaves them.
    for (const draft of [join(dir, 'run/flannel/.subnet.env.draft'), join(state, '.lease.json.draft')])
      writeFileSync(draft, 'half')
    assert.deepEqual(forget(state, 'a', path), [path, join(state, 'lease.json')])
    assert.deepEqual([readdirSync(join(dir, 'run/flannel')), readdirSync(state)], [[], []])
    writeSubnetEnv(path, V6)
    remember(state, 'a', V4)
    assert.deepEqual(forget(state, 'a', path), [join(state, 'lease.json')])
    assert.ok(existsSync(path))
  })

  it('forget() removes the node’s WireGuard key, but not while another agent of the node has it', () => {
    const state = join(dir, 'lib/plumb')
    remember(state, 'a', V4)
    remember(state, 'a', V6, parse.network('other'))
    const { publicKey } = WireguardKeys.open(state, 'a', join(dir, 'none'))
    forget(state, 'a', path, { instance: parse.network('other') })
    assert.equal(WireguardKeys.open(state, 'a', join(dir, 'none')).publicKey, publicKey)
    forget(state, 'a', path)
    assert.deepEqual(readdirSync(state), [])
  })
  it('forget() removes the subnet.env of the lease before, too: a kill came between the new lease.json and the new subnet.env', () => {
    const state = join(dir, 'lib/plumb')
    remember(state, 'a', V4)
    writeSubnetEnv(path, V4)
    remember(state, 'a', DUAL)
    assert.deepEqual(remembered(state, 'a'), DUAL)
    assert.equal(remember(state, 'a', DUAL), false)
    assert.deepEqual(forget(state, 'a', path), [path, join(state, 'lease.json')])
  })
})
