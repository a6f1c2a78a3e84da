// lane: peers
// needs: reference
// Tests agent/dhcp, with real DHCP servers.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, realpathSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { references } from '../../../scripts/peers.ts'
import { daemon, dnsmasq, lan, leased, referenceDaemon, type Server, socketPath } from '../../support/dhcp.ts'
import { inNamespaces, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { type Conf, containerId } from '../../support/network.ts'
import { skip } from '../../support/skip.ts'

const DIST = join(import.meta.dir, '../../../dist')
// One address, so that both get the same.
const ONE = '--dhcp-range=10.7.0.50,10.7.0.50,120'
const OPTIONS: Readonly<Record<string, { readonly server: readonly string[]; readonly ipam?: object }>> = {
  'router and static routes': {
    server: ['--dhcp-option=33,192.168.5.0,10.7.0.3'],
    ipam: { request: [{ option: '33' }] },
  },
  'no router': { server: ['--dhcp-option=option:router'] },
  'options sent and asked for': {
    server: [],
    ipam: {
      provide: [
        { option: 'host-name', value: 'web' },
        { option: '60', value: 'plumb' },
      ],
      request: [{ option: '121' }, { option: 'routers' }],
    },
  },
  'classless routes that are asked for': {
    server: ['--dhcp-option=121,10.9.0.0/16,10.7.0.3,0.0.0.0/0,10.7.0.4'],
    ipam: { request: [{ option: '121' }] },
  },
}

describe('dhcp beside the reference', () => {
  for (const reference of references()) {
    const theirs = reference.path
    for (const [what, { server, ipam = {} }] of Object.entries(OPTIONS))
      it(
        `${what}: the same addresses, gateway and routes as of ${reference.version}, and the same client on the wire`,
        inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
          if (!existsSync(join(theirs, 'dhcp'))) skip(test, `${theirs} has no dhcp`)
          await lan(node)
          const running = await dnsmasq(node, ONE, ...server)
          const [mine, other] = [socketPath(), socketPath()]
          await daemon(node, mine)
          await referenceDaemon(node, theirs, other)
          const one = await life({ node, pod, conf: leased(mine, ipam, { name: 'lan' }), bin: DIST, server: running })
          const two = await life({
            node,
            pod,
            conf: leased(other, ipam, { name: 'lan' }),
            bin: theirs,
            server: running,
          })
          assert.deepEqual(one.result['ips'], two.result['ips'])
          assert.deepEqual(one.result['routes'], two.result['routes'])
          assert.deepEqual(one.clients, two.clients)
        }),
      )

    for (const [what, ours] of Object.entries({
      "plumb's bridge, the reference's dhcp and daemon": 'bridge',
      "the reference's bridge, plumb's dhcp and daemon": 'dhcp',
    }))
      it(
        `${what}, ${reference.version}: ADD, packets, DEL`,
        inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
          if (!existsSync(join(theirs, 'dhcp'))) skip(test, `${theirs} has no dhcp`)
          const bin = mkdtempSync('/run/mixed-')
          for (const type of ['bridge', 'dhcp']) symlinkSync(join(type === ours ? DIST : theirs, type), join(bin, type))
          await lan(node)
          const running = await dnsmasq(node)
          const socket = socketPath()
          await (ours === 'dhcp' ? daemon(node, socket) : referenceDaemon(node, theirs, socket))
          const { result } = await life({ node, pod, conf: leased(socket), bin, server: running })
          assert.match(result['ips'][0].address, /^10\.7\.0\.5\d\/24$/)
        }),
      )
  }
})

/** ADD, packets and DEL; the result, and what the server saw of the client. */
async function life({
  node,
  pod,
  conf,
  bin,
  server,
}: {
  node: Namespace
  pod: Namespace
  conf: Conf
  bin: string
  server: Server
}): Promise<{ result: Row; clients: string[] }> {
  const before = server.text().length
  const call = (command: string) =>
    plugin(
      'bridge',
      {
        command,
        conf: { ...conf, cniVersion: '1.0.0' },
        netns: pod,
        containerId: containerId(pod),
        path: bin,
        file: join(bin, 'bridge'),
      },
      node,
    )
  const { status, stdout, result } = await call('ADD')
  assert.equal(status, 0, stdout)
  await until(() => ping(pod, '10.7.0.1'))
  const done = await call('DEL')
  assert.equal(done.status, 0, done.stdout)
  // What the reference's daemon gives back is lost now and then: it answers before it has.
  if (realpathSync(join(bin, 'dhcp')) === realpathSync(join(DIST, 'dhcp')))
    await until(() => server.leases().length === 0)
  const said = server.text().slice(before)
  return {
    result,
    clients: [
      ...new Set([...said.matchAll(/client provides name: .*|vendor class: .*|client-id.*/g)].map(([line]) => line)),
    ].sort(),
  }
}
