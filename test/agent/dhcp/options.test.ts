// lane: netns
// Tests agent/dhcp and plugins/dhcp.ts.
import assert from 'node:assert/strict'
import { LAN, leased, place, type Server } from '../../support/dhcp.ts'
import { inNamespaces, until } from '../../support/harness.ts'
import { network } from '../../support/network.ts'

describe('dhcp: options', () => {
  it(
    'provide and request: values, CNI_ARGS by fromArg, names and numbers are on the wire; skipDefault asks for nothing else',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const provide = [
        { option: 'host-name', fromArg: 'K8S_POD_NAME' },
        { option: 'vendor-class-identifier', value: 'plumb' },
        { option: '77', value: 'users' },
      ]
      const { net, server, socket } = await place(node, { ipam: { provide, request: [{ option: '42' }] } })
      await net.add(pod, { args: 'IgnoreUnknown=1;K8S_POD_NAME=web-0' })
      const first = server.text()
      assert.match(first, /client provides name: web-0/)
      assert.match(first, /vendor class: plumb/)
      assert.match(first, /user class: (users|sers)/)
      assert.deepEqual(asked(server), [121, 1, 3, 6, 15, 26, 33, 119, 42])
      const bare = network(
        node,
        leased(socket, {
          provide: [{ option: 'dhcp-client-identifier', value: 'me' }],
          request: [{ skipDefault: true, option: 'subnet-mask' }, { option: 'routers' }],
        }),
      )
      await bare.add(other)
      assert.deepEqual(asked(server), [1, 3])
      await until(() => server.leases().length === 2)
    }),
  )

  it(
    'option 121 beats 33 and the router; without it 33 and the router count; a route on the link has no gateway and scope link',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }) => {
      const options = [
        '--dhcp-option=33,192.168.5.0,10.7.0.2',
        '--dhcp-option-force=tag:new,121,10.9.0.0/16,10.7.0.3,10.8.4.0/22,0.0.0.0,0.0.0.0/0,10.7.0.4',
        '--dhcp-userclass=set:new,new',
      ]
      const { net, socket } = await place(node, { server: options })
      const old = await net.add(pod)
      assert.deepEqual(old['routes'], [
        { dst: '192.168.5.0/24', gw: '10.7.0.2' },
        { dst: '0.0.0.0/0', gw: LAN.node },
      ])
      const classless = network(node, leased(socket, { provide: [{ option: 'user-class', value: '\u0003new' }] }))
      const result = await classless.add(other)
      assert.deepEqual(result['routes'], [
        { dst: '10.9.0.0/16', gw: '10.7.0.3' },
        { dst: '10.8.4.0/22', scope: 253 },
        { dst: '0.0.0.0/0', gw: '10.7.0.4' },
      ])
      const [row] = await other.json('route', 'show', '10.8.4.0/22')
      assert.deepEqual([row?.['gateway'], row?.['scope']], [undefined, 'link'])
      await classless.check(other, result)
    }),
  )

  it(
    'priority is the metric of every route',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const { net } = await place(node, { ipam: { priority: 77 } })
      const result = await net.add(pod)
      assert.deepEqual(result['routes'], [{ dst: '0.0.0.0/0', gw: LAN.node, priority: 77 }])
      assert.equal((await pod.json('route', 'show', 'default'))[0]?.['metric'], 77)
      await net.check(pod, result)
    }),
  )

  it(
    'DNS servers, domain and search list are in the result, and the MTU on its routes',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const options = [
        'option:dns-server,10.7.0.53,10.7.0.54',
        'option:domain-name,example.org',
        'option:domain-search,a.example,b.a.example',
        'option:mtu,1400',
      ].map((one) => `--dhcp-option=${one}`)
      const { net } = await place(node, { server: options })
      const result = await net.add(pod)
      assert.deepEqual(result['dns'], {
        nameservers: ['10.7.0.53', '10.7.0.54'],
        domain: 'example.org',
        search: ['a.example', 'b.a.example'],
      })
      assert.deepEqual(result['routes'], [{ dst: '0.0.0.0/0', gw: LAN.node, mtu: 1400 }])
      assert.match(await pod.ip('route', 'show', 'default'), /mtu 1400/)
    }),
  )
})

/** The options that the last client has asked for. */
function asked(server: Server): number[] {
  const last = server.text().split('DHCPDISCOVER').at(-1) as string
  const [first = ''] = last.split('DHCPREQUEST')
  return [...first.matchAll(/requested options: (.*)/g)].flatMap(([, list = '']) =>
    list.split(',').flatMap((one) => (/^\s*(\d+)/.exec(one) ? [Number(/\d+/.exec(one)?.[0])] : [])),
  )
}
