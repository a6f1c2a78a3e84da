import { mkdirSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { networkText } from '../../agent/node/install.ts'
import { type Call, call } from '../call.ts'
import { makeNode } from '../node.ts'
import { median, paired } from '../paired.ts'
import { type Bench, ratios } from '../part.ts'
import { type Bar, short, type Table } from '../report.ts'
import { preread, type Side } from '../sides.ts'

const TIMES = 30
const MOST = 1
const SUBNET = '10.244.7.0/24'

/**
 * What a pod of a cluster costs the node's CPU: the network that plumb installs, and flannel's list with the reference
 * plugins.
 */
export function network(bench: Bench): Table {
  const { ours, theirs } = bench
  const dir = bench.dataDir()
  mkdirSync(dir, { recursive: true })
  const subnetFile = `${dir}/subnet.env`
  writeFileSync(
    subnetFile,
    `FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n`,
  )
  const calls = [installed(ours, subnetFile, bench), ...theirs.map((side) => delegated(side, bench))]
  for (const { side } of calls) preread(side)
  const rows: string[][] = []
  const bars: Bar[] = []
  for (const isBusy of [false, true]) {
    const busy = isBusy
      ? Array.from({ length: availableParallelism() }, () =>
          Bun.spawn(['sh', '-c', 'while :; do :; done'], { stdio: ['ignore', 'ignore', 'ignore'] }),
        )
      : []
    const samples = paired(calls, bench.times(TIMES), (one, round) => {
      const loopback: Call = {
        ...one,
        type: 'loopback',
        conf: { cniVersion: '1.0.0', name: 'cni-loopback', type: 'loopback' },
        ifname: 'lo',
      }
      const { chained: _, ...lo } = loopback
      const id = `${isBusy ? 'b' : 'c'}${round}`
      const [up, add] = [call(lo, 'ADD', id), call(one, 'ADD', id)]
      const [del, down] = [call(one, 'DEL', id), call(lo, 'DEL', id)]
      return [
        { ms: up.ms + add.ms, cpuMs: up.cpuMs + add.cpuMs },
        { ms: del.ms + down.ms, cpuMs: del.cpuMs + down.cpuMs },
      ]
    })
    for (const child of busy) child.kill('SIGKILL')
    for (const [i, verb] of ['ADD', 'DEL', 'both'].entries()) {
      const cpu = (one: Call) =>
        median(
          (samples.get(one) ?? []).map((both) =>
            both.reduce((sum, { cpuMs }, at) => (i === 2 || at === i ? sum + cpuMs : sum), 0),
          ),
        )
      const [own, ...others] = calls.map(cpu) as [number, ...number[]]
      const { cells, bar } = ratios(
        own,
        others.map((figure, at) => ({ name: theirs[at]?.name ?? '', figure })),
        i === 2 ? MOST : undefined,
      )
      if (bar) bars.push(bar)
      rows.push([
        `${isBusy ? 'all cores busy' : 'at rest'}, ${verb}`,
        String(bench.times(TIMES)),
        short(own),
        ...others.map(short),
        ...cells,
        bar?.text ?? '',
      ])
    }
  }
  return {
    title: 'CPU of a pod of a cluster',
    method:
      "Medians of CPU in ms, of the plugins and all that they start, with loopback, as containerd calls them. plumb: the network that `plumb agent --install-cni` writes, flannel with all in one process. Reference: what flannel's own list makes, bridge with host-local and portmap; flannel's plugin itself, one more process there, is not in it, for it cannot be built here. A pod without host ports.",
    head: [
      'call',
      'n',
      'plumb',
      ...theirs.map(({ name }) => name),
      ...theirs.map(({ name }) => `ratio to ${name.replace('reference ', '')}`),
      'bar (ratio)',
    ],
    rows,
    bars,
  }
}

function installed(side: Side, subnetFile: string, bench: Bench): Call {
  const { plugins, name } = JSON.parse(networkText(subnetFile))
  return {
    side,
    type: 'flannel',
    ...makeNode(),
    conf: { cniVersion: '1.0.0', name, ...plugins[0], dataDir: bench.dataDir(), ipam: { dataDir: bench.dataDir() } },
  }
}

// The configuration that flannel's plugin gives to bridge (flannel-io/cni-plugin, flannel_linux.go).
function delegated(side: Side, bench: Bench): Call {
  const base = { cniVersion: '1.0.0', name: 'cbr0' }
  const ipam = {
    type: 'host-local',
    dataDir: bench.dataDir(),
    ranges: [[{ subnet: SUBNET }]],
    routes: [{ dst: '10.244.0.0/16' }],
  }
  return {
    side,
    type: 'bridge',
    ...makeNode(),
    conf: {
      ...base,
      type: 'bridge',
      hairpinMode: true,
      isDefaultGateway: true,
      isGateway: true,
      ipMasq: false,
      mtu: 1450,
      ipam,
    },
    chained: [{ type: 'portmap', conf: { ...base, type: 'portmap', capabilities: { portMappings: true } } }],
  }
}
