// Times beside the reference plugins and flanneld, paired in one run. Each file of `parts/` is one table of
// bench/RESULTS.md; `agent/` has what the agent's part needs.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { commandInMachine, missing } from '../test/support/machine/machine.ts'
import type { Bench, Part } from './part.ts'
import { admission } from './parts/admission.ts'
import { agent } from './parts/agent.ts'
import { attach } from './parts/attach.ts'
import { backends, wireguard } from './parts/backends.ts'
import { bandwidth } from './parts/bandwidth.ts'
import { budget } from './parts/budget.ts'
import { chain } from './parts/chain.ts'
import { cost } from './parts/cost.ts'
import { crowd, ports } from './parts/crowd.ts'
import { doctor } from './parts/doctor.ts'
import { fleet } from './parts/fleet.ts'
import { full } from './parts/full.ts'
import { kube } from './parts/kube.ts'
import { links } from './parts/links.ts'
import { many } from './parts/many.ts'
import { network } from './parts/network.ts'
import { night } from './parts/night.ts'
import { page } from './parts/page.ts'
import { pods } from './parts/pods.ts'
import { policy } from './parts/policy.ts'
import { pool } from './parts/pool.ts'
import { services } from './parts/services.ts'
import { spans } from './parts/spans.ts'
import { start } from './parts/start.ts'
import { storm } from './parts/storm.ts'
import { type Bar, circumstances, markdown, write } from './report.ts'
import { sides } from './sides.ts'

// In this order: what leaves the kernel work to do afterwards comes last.
const PARTS: Readonly<Record<string, Part>> = {
  start,
  attach,
  chain,
  network,
  admission,
  links,
  cost,
  spans,
  pool,
  bandwidth,
  backends,
  wireguard,
  agent,
  doctor,
  fleet,
  night,
  page,
  kube,
  pods,
  policy,
  services,
  full,
  storm,
  crowd,
  ports,
  many,
  budget,
}
const USAGE = `npm run bench [-- [--quick] [--only ${Object.keys(PARTS).join('|')}] [--write] [--machine] [--write-budget] [--paths TEXT] [--agent-flags FLAGS]]\n`
const SCRATCH = 'PLUMB_BENCH_SCRATCH'
// Networks, mounts and processes of its own: nothing of the machine's is touched, and whatever is left goes with it.
const SANDBOX = [
  ...'unshare --net --mount --pid --fork --mount-proc --kill-child=KILL --propagation private sh -ec'.split(' '),
  'mount -t tmpfs tmpfs /run; ip link set lo up; exec "$@"',
  'sandbox',
]

// Room for those of the full node.
const [LIMIT, CONNECTIONS] = ['/proc/sys/net/netfilter/nf_conntrack_max', 600_000]

const { values: flags } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    write: { type: 'boolean', default: false },
    machine: { type: 'boolean', default: false },
    'write-budget': { type: 'boolean', default: false },
    paths: { type: 'string' },
    'agent-flags': { type: 'string', default: '' },
  },
})
const scratch = process.env[SCRATCH]
try {
  process.exitCode = scratch ? await run(scratch) : refuse() || (flags.machine ? await there() : again())
} catch (cause) {
  process.stderr.write(`bench: ${(cause as Error).stack}\n`)
  process.exitCode = 1
}

function refuse(): number {
  const why =
    flags.only && !Object.hasOwn(PARTS, flags.only)
      ? `there is no part ${JSON.stringify(flags.only)}`
      : flags.write && (flags.only || flags.quick || flags.machine)
        ? '--write wants the whole bench'
        : process.getuid?.() === 0
          ? ''
          : 'it makes network namespaces: run it as root'
  if (why) process.stderr.write(`bench: ${why}\n${USAGE}`)
  return why ? 1 : 0
}

// The same in the virtual machine of the tests. Its kernel has devices that others lack.
async function there(): Promise<number> {
  const why = missing()
  if (why) throw new Error(`Cannot start a virtual machine: ${why}`)
  const argv = process.argv.slice(2).filter((one) => one !== '--machine')
  const line = [process.execPath, 'bench/index.ts', ...argv].join(' ')
  let heard = ''
  const last = await commandInMachine(`${line} >/dev/reports 2>&1; sleep 1`, (text) => {
    heard += text
    process.stdout.write(text)
  })
  if (/bars met/.test(heard)) return 0
  process.stderr.write(`bench: ${last}\n`)
  return 1
}

// The same program once more, inside. The kernel takes the limit of connections from the machine's own namespace only.
function again(): number {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-bench-'))
  const limit = existsSync(LIMIT) && (flags.only ?? 'full') === 'full' ? readFileSync(LIMIT, 'utf8') : undefined
  try {
    if (Number(limit) < CONNECTIONS) writeFileSync(LIMIT, String(CONNECTIONS))
    return (
      Bun.spawnSync([...SANDBOX, process.execPath, ...process.argv.slice(1)], {
        env: { ...process.env, [SCRATCH]: dir, PLUMB_SANDBOX: '1' },
        stdio: ['inherit', 'inherit', 'inherit'],
      }).exitCode ?? 1
    )
  } finally {
    if (Number(limit) < CONNECTIONS) writeFileSync(LIMIT, limit as string)
    rmSync(dir, { recursive: true, force: true })
  }
}

async function run(scratch: string): Promise<number> {
  const began = performance.now()
  const { ours, theirs } = sides(join(scratch, 'bin'))
  let dirs = 0
  const bench: Bench = {
    ours,
    theirs,
    times: (wanted) => (flags.quick ? Math.ceil(wanted / 5) : wanted),
    budget: {
      isWritten: flags['write-budget'],
      paths: flags.paths,
      flags: flags['agent-flags'].split(' ').filter(Boolean),
    },
    dataDir() {
      const dir = join(scratch, String(++dirs))
      mkdirSync(dir)
      return dir
    },
  }
  const head = circumstances(
    `npm run bench${flags.write ? ' -- --write' : flags.quick ? ' -- --quick' : ''}`,
    [ours, ...theirs].map(({ name }) => name),
  )
  const texts = [head]
  const bars: Bar[] = []
  process.stdout.write(`${head}\n\n`)
  for (const [name, part] of Object.entries(PARTS)) {
    if (flags.only && flags.only !== name) continue
    for (const table of [await part(bench)].flat()) {
      bars.push(...table.bars)
      const text = markdown(table)
      texts.push(text)
      process.stdout.write(`${text}\n`)
    }
  }
  const end = `${bars.filter(({ met }) => met).length} of ${bars.length} bars met, in ${Math.round((performance.now() - began) / 1000)} s.`
  process.stdout.write(`${end}\n`)
  if (flags.write) write([...texts, end].join('\n\n'))
  return 0
}
