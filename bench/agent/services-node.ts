// Runs on a node of the bench of Services: an API server with Services and slices, endpoints that answer, and a client
// that waits for a Service. Commands come on stdin.
import { createConnection, createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { type Kind, serveObjects } from './object-server.ts'

const [services = 0, each = 0] = process.argv.slice(2).map(Number)
const [PORT, VIP_PORT, ENDPOINT_PORT] = [6443, 80, 8080]
/** A client that gets no answer tries again after so long. */
const TRY_MS = 4

const dotted = (first: number, n: number) => `${first}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`
const vipOf = (n: number) => dotted(11, n + 1)
const meta = (name: string, more: object = {}) => ({
  namespace: 'x',
  name,
  uid: `uid-${name}`,
  resourceVersion: String(++version),
  creationTimestamp: '2026-01-01T00:00:00Z',
  ...more,
})
let version = 1

function service(n: number, port?: number): object {
  return {
    metadata: meta(`s${n}`),
    spec: {
      type: 'ClusterIP',
      clusterIP: vipOf(n),
      clusterIPs: [vipOf(n)],
      ipFamilies: ['IPv4'],
      ipFamilyPolicy: 'SingleStack',
      ports: [{ protocol: 'TCP', port: port ?? VIP_PORT, targetPort: port ?? ENDPOINT_PORT }],
      sessionAffinity: 'None',
      internalTrafficPolicy: 'Cluster',
    },
    status: { loadBalancer: {} },
  }
}

function slice(n: number, addresses: readonly string[], port = ENDPOINT_PORT): object {
  const endpoints = addresses.map((address, i) => ({
    addresses: [address],
    conditions: { ready: true, serving: true, terminating: false },
    nodeName: `n${(i % 100) + 2}`,
  }))
  return {
    metadata: meta(`s${n}-1`, {
      labels: { 'kubernetes.io/service-name': `s${n}`, 'endpointslice.kubernetes.io/managed-by': 'bench' },
    }),
    addressType: 'IPv4',
    ports: [{ name: '', protocol: 'TCP', port }],
    endpoints,
  }
}

// Endpoints of a probed Service are addresses of this node, where a server answers.
function addressesOf(n: number, isHere: boolean): string[] {
  return Array.from({ length: each }, (_, i) => (isHere ? `10.250.${n & 255}.${i + 1}` : dotted(10, n * each + i)))
}

const KINDS: Readonly<Record<string, Kind>> = {
  '/api/v1/services': {
    kind: 'Service',
    apiVersion: 'v1',
    items: Array.from({ length: services }, (_, n) => service(n)),
  },
  '/apis/discovery.k8s.io/v1/endpointslices': {
    kind: 'EndpointSlice',
    apiVersion: 'discovery.k8s.io/v1',
    items: Array.from({ length: services }, (_, n) => slice(n, addressesOf(n, n === services - 1))),
  },
  '/api/v1/nodes': {
    kind: 'Node',
    apiVersion: 'v1',
    items: [
      {
        metadata: { ...meta('n1'), namespace: undefined },
        spec: { podCIDR: '10.244.0.0/24', podCIDRs: ['10.244.0.0/24'] },
        status: { addresses: [{ type: 'InternalIP', address: '192.168.77.1' }] },
      },
    ],
  },
  '/apis/networking.k8s.io/v1/servicecidrs': { kind: 'ServiceCIDR', apiVersion: 'networking.k8s.io/v1', items: [] },
}
const api = serveObjects(PORT, KINDS, () => version)

createServer((socket) => socket.on('error', () => {}).end('ok')).listen(ENDPOINT_PORT, '0.0.0.0')

function announce(path: string, object: object): void {
  api.announce('ADDED', path, object)
}

function connects(ip: string, port = VIP_PORT, isRefusedToo = false): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: ip, port })
    const done = (isOpen: boolean) => {
      clearTimeout(timer)
      socket.destroy()
      resolve(isOpen)
    }
    const timer = setTimeout(() => done(false), TRY_MS)
    socket
      .on('connect', () => done(true))
      .on('error', (cause) => done(isRefusedToo && (cause as NodeJS.ErrnoException).code === 'ECONNREFUSED'))
  })
}

// Milliseconds until a client reaches a Service.
async function reached(n: number): Promise<number> {
  const began = performance.now()
  while (!(await connects(vipOf(n)))) if (performance.now() - began > 600_000) return Number.POSITIVE_INFINITY
  return performance.now() - began
}

process.stdout.write('ready\n')
let next = services
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'more') {
    const n = next++
    const object = [service(n), slice(n, addressesOf(n, true))] as const
    announce('/api/v1/services', object[0])
    announce('/apis/discovery.k8s.io/v1/endpointslices', object[1])
    process.stdout.write(`${await reached(n)}\n`)
  } else if (line.startsWith('connections ')) {
    // The time that a first packet takes: a connection, made and closed.
    const times: number[] = []
    for (let i = Number(line.split(' ')[1]); i > 0; i--) {
      const began = performance.now()
      await connects(vipOf(services - 1))
      times.push(performance.now() - began)
    }
    process.stdout.write(`${JSON.stringify(times)}\n`)
  } else if (line.startsWith('pod ')) {
    // The Service of a pod where nobody listens yet. A client that is refused has reached it.
    const [, address = '', port = ''] = line.split(' ')
    const n = next++
    announce('/apis/discovery.k8s.io/v1/endpointslices', slice(n, [address], Number(port)))
    announce('/api/v1/services', service(n, Number(port)))
    while (!(await connects(vipOf(n), Number(port), true))) await Bun.sleep(TRY_MS)
    process.stdout.write(`${vipOf(n)}\n`)
  } else process.stdout.write(`${await reached(services - 1)}\n`)
}
