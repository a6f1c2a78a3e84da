// Runs the part of the agent that serves Services, in the namespace of a node: with so many Services, and then with one
// Service more. Prints, as JSON, how many items of collections the step for that one went through, how many elements
// nft got in it, and how often it told of addresses.

import { Changes } from '../../agent/cluster/changes.ts'
import { type Service, type Slice, serviceOf, sliceOf } from '../../agent/cluster/services.ts'
import { noObjects } from '../../agent/cluster/source.ts'
import { Repairs } from '../../agent/parts/repairs.ts'
import { ServicesPart, type ServicesPartOptions } from '../../agent/parts/services.ts'
import { keepFailures } from '../../agent/scheduler/failures.ts'
import { initialState } from '../../agent/state/condition.ts'
import { run } from '../../lib/os/exec.ts'
import { parseCidr } from '../../lib/text/ip.ts'

const count = Number(process.argv[2])
const dotted = (first: number, n: number) => `${first}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`
const service = (n: number) =>
  serviceOf({
    metadata: { namespace: 'x', name: `s${n}` },
    spec: { clusterIP: dotted(11, n), externalIPs: [dotted(12, n)], ports: [{ port: 80 }] },
  }) as Service
const slice = (n: number) =>
  sliceOf({
    metadata: { namespace: 'x', name: `s${n}`, labels: { 'kubernetes.io/service-name': `s${n}` } },
    addressType: 'IPv4',
    ports: [{ name: '', port: 8080 }],
    endpoints: [{ addresses: [dotted(10, n)], nodeName: 'n2' }],
  }) as Slice

let visited = 0
// Counts what loops over maps and sets go through, and what functions of lists go through.
function countVisits(): void {
  type Next = (this: unknown) => IteratorResult<unknown>
  for (const collection of [new Map(), new Set(), []]) {
    const iterator = Object.getPrototypeOf(collection[Symbol.iterator]()) as { next: Next }
    const { next } = iterator
    iterator.next = function () {
      visited++
      return next.call(this)
    }
  }
  type Method = (this: readonly unknown[], ...given: unknown[]) => unknown
  const list = Array.prototype as unknown as Record<string, Method>
  for (const name of 'every filter find flatMap forEach includes join map reduce slice some sort'.split(' ')) {
    const method = list[name] as Method
    list[name] = function (...given) {
      visited += this.length
      return method.apply(this, given)
    }
  }
  for (const all of [Map.prototype, Set.prototype] as { forEach: Method }[]) {
    const { forEach } = all
    all.forEach = function (...given) {
      visited += (this as unknown as Set<unknown>).size
      return forEach.apply(this, given)
    }
  }
}

const services = new Map(Array.from({ length: count }, (_, n) => [`x/s${n}`, service(n)]))
const slices = new Map(Array.from({ length: count }, (_, n) => [`x/s${n}`, slice(n)]))
const changes = new Changes(['services', 'slices', 'nodes'], () => {})
const objects = {
  objects: { ...noObjects(), services, slices },
  origin: 'memory',
  isComplete: () => true,
  trouble: () => undefined,
  refused: () => [],
  changes: () => changes,
  run: async () => {},
}
const note = (n: number) => {
  changes.note('services', `x/s${n}`)
  changes.note('slices', `x/s${n}`)
}
const elements: number[] = []
const options: ServicesPartOptions = {
  node: 'n1',
  objects,
  settings: {
    nodePortAddresses: ['127.0.0.0/8', '::1/128'].map(parseCidr),
    serviceCidrs: [],
    masqueradeAll: false,
    clusterCidrs: [],
  },
  networks: [],
  quietMs: 0,
  failures: keepFailures(() => {}),
  ended: async () => {},
  async run(argv: readonly string[], stdin: string) {
    elements.push(stdin.split('\n').filter((line) => / element /.test(line)).length)
    return run(argv, stdin)
  },
}
const state = initialState()
const signal = new AbortController().signal
const repairs = new Repairs(state, () => {})
const part = new ServicesPart(options, { now: state, repairs, signal })
let told = 0
part.onReached(() => told++)
for (let n = 0; n < count; n++) note(n)
await part.step()
services.set(`x/s${count}`, service(count))
slices.set(`x/s${count}`, slice(count))
note(count)
elements.length = told = 0
countVisits()
visited = 0
await part.step()
const seen = visited
const frontends = state.services?.frontends
const reached = part.reached?.size
process.stdout.write(JSON.stringify({ visited: seen, elements, told, frontends, reached }))
process.exit(0)
