import assert from 'node:assert/strict'
import type { Namespace } from './harness.ts'
import { patient } from './patience.ts'

/**
 * The rest of the world: a namespace behind the node, on a link `up0` with these addresses. It routes the pods' subnets
 * back to the node, so packets that are not masqueraded are heard all the same.
 */
export const WORLD = { node4: '192.0.2.1', world4: '192.0.2.2', node6: '2001:db8::1', world6: '2001:db8::2' } as const

/** Wires the outside to the node. */
export async function wireWorld(node: Namespace, world: Namespace, ...pods: readonly string[]): Promise<void> {
  // A router that holds only a tentative link-local address asks for no neighbours (ndisc_solicit).
  for (const ns of [node, world]) await ns.exec(['sh', '-c', 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad'])
  await node.ip('link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up0', 'netns', world.path)
  for (const [ns, four, six] of [
    [node, WORLD.node4, WORLD.node6],
    [world, WORLD.world4, WORLD.world6],
  ] as const) {
    await ns.ip('link', 'set', 'lo', 'up')
    await ns.ip('link', 'set', 'up0', 'up')
    await ns.ip('addr', 'add', `${four}/24`, 'dev', 'up0')
    await ns.ip('addr', 'add', `${six}/64`, 'dev', 'up0', 'nodad')
  }
  for (const subnet of pods)
    await world.ip('route', 'add', subnet, 'via', subnet.includes(':') ? WORLD.node6 : WORLD.node4)
}

/**
 * The source address that a TCP server on `address` in `to` sees of a connection from `from`. Rejects when none comes
 * about within 5 s.
 */
export async function sourceSeen(from: Namespace, to: Namespace, address: string): Promise<string> {
  const server = to.exec([process.execPath, '-e', SERVER, address])
  const { status, stdout, stderr } = await from.exec([process.execPath, '-e', CLIENT, address])
  assert.equal(status, 0, `No TCP from ${from.name} to ${address}: ${stderr} ${(await server).stderr}`)
  await server
  return stdout
}

/**
 * The source address of a UDP datagram that `from`, bound to `source`, sends out of `dev` to a multicast group that
 * `to` has joined.
 */
export async function multicastSeen(
  from: Namespace,
  to: Namespace,
  { source, out, heard }: { source: string; out: string; heard: string },
): Promise<string> {
  const receiver = to.exec([process.execPath, '-e', JOIN, heard])
  const { status, stderr } = await from.exec([process.execPath, '-e', SEND, source, out])
  assert.equal(status, 0, stderr)
  return (await receiver).stdout
}

const SERVER = `
const [address] = process.argv.slice(-1)
Bun.listen({ hostname: address, port: 4242, socket: { open: (socket) => void socket.write(socket.remoteAddress), data: () => process.exit(0) } })
setTimeout(() => process.exit(1), ${patient(6000)})`
const CLIENT = `
const [address] = process.argv.slice(-1)
const end = Date.now() + ${patient(5000)}
const attempt = () => new Promise((done, failed) => {
  const timer = setTimeout(() => failed(new Error('no answer')), ${patient(1000)})
  // The server goes on until it hears that its answer was heard.
  const data = (socket, bytes) => { clearTimeout(timer); socket.write('heard'); socket.flush(); done(String(bytes)) }
  Bun.connect({ hostname: address, port: 4242, socket: { data, close: () => failed(new Error('closed')), connectError: (_, cause) => failed(cause) } }).catch(failed)
})
for (;;) {
  try { process.stdout.write(await attempt()); process.exit(0) } catch (cause) { if (Date.now() > end) throw cause; await Bun.sleep(20) }
}`
const JOIN = `
const [own] = process.argv.slice(-1)
const socket = await Bun.udpSocket({ port: 4243, socket: { data(_, bytes, port, address) { process.stdout.write(address); process.exit(0) } } })
socket.addMembership('239.1.2.3', own)
setTimeout(() => process.exit(1), ${patient(6000)})`
const SEND = `
const [source, out] = process.argv.slice(-2)
const socket = await Bun.udpSocket({ hostname: source, socket: {} })
socket.setMulticastInterface(out)
socket.setMulticastTTL(4)
// Until the other side has joined: it has one to hear.
for (let i = 0; i < 60; i++) { socket.send('x', 4243, '239.1.2.3'); await Bun.sleep(20) }
process.exit(0)`
