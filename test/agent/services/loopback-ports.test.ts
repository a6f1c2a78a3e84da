// lane: quick
// Tests agent/services/loopback-ports.ts: the servers of NodePorts on ::1.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import type { Frontend } from '../../../agent/services/compile.ts'
import { LoopbackPorts } from '../../../agent/services/loopback-ports.ts'
import { until } from '../../support/harness.ts'

async function listening(): Promise<{ readonly server: Server; readonly port: number; readonly sockets: Socket[] }> {
  const sockets: Socket[] = []
  const server = createServer((socket) => void sockets.push(socket.on('error', () => {}))).listen({
    host: '::1',
    port: 0,
  })
  await once(server, 'listening')
  return { server, port: (server.address() as AddressInfo).port, sockets }
}

function frontendOf(port: number, to: number): Frontend {
  return {
    kind: 'port',
    family: 6,
    protocol: 'tcp',
    key: `tcp . ${port}`,
    answer: { kind: 'port', family: 6, protocol: 'tcp', cluster: 1 },
    cluster: [`::1 . ${to}`],
    local: [],
    lasting: [],
    lastingLocal: [],
    of: [],
    isReached: false,
  }
}

describe('NodePorts on ::1', () => {
  it('a port that another program has stays a failure at each step until it is open', async () => {
    const reports: string[] = []
    const ports = new LoopbackPorts((failures) => reports.push(failures.map(({ text }) => text).join()))
    const other = await listening()
    try {
      const step = () => ports.update([frontendOf(other.port, other.port)])
      step()
      await until(() => reports.at(-1) !== '', 5000)
      const before = reports.length
      for (let i = 0; i < 5; i++) step()
      await until(() => reports.length >= before + 10, 5000)
      assert.deepEqual([...new Set(reports.slice(before))], [reports[before]])
      assert.match(reports[before] ?? '', /^Cannot open NodePort \d+ on ::1: /)
      other.server.close()
      await once(other.server, 'close')
      step()
      await until(() => reports.at(-1) === '', 5000)
    } finally {
      ports.close()
      other.server.close()
    }
  })

  it('a program of the node cannot take all files of the agent: only so many connections at once, and again when they have ended', async () => {
    const MOST = 20
    const ports = new LoopbackPorts(() => {}, MOST)
    const [endpoint, free] = [await listening(), await listening()]
    const clients: Socket[] = []
    try {
      free.server.close()
      await once(free.server, 'close')
      ports.update([frontendOf(free.port, endpoint.port)])
      const open = () => {
        const client = connect({ host: '::1', port: free.port }).on('error', () => {})
        clients.push(client)
        return client
      }
      await until(
        () =>
          new Promise<boolean>((resolve) =>
            open()
              .on('connect', () => resolve(true))
              .on('error', () => resolve(false)),
          ),
        5000,
      )
      for (const one of clients.splice(0)) one.destroy()
      for (let i = 0; i < MOST + 10; i++) open()
      await until(
        () =>
          clients.filter((one) => one.closed).length >= 10 &&
          endpoint.sockets.filter((one) => !one.closed).length >= MOST - 1,
        20_000,
      )
      assert.ok(endpoint.sockets.filter((one) => !one.closed).length <= MOST)
      for (const one of clients.splice(0)) one.destroy()
      await until(() => endpoint.sockets.every((one) => one.closed || one.destroyed), 20_000)
      const [had, again] = [endpoint.sockets.length, open()]
      await until(() => endpoint.sockets.length > had, 5000)
      again.destroy()
    } finally {
      for (const one of [...clients, ...endpoint.sockets]) one.destroy()
      ports.close()
      endpoint.server.close()
    }
  })
})
