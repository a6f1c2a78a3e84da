import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { type Kernel, kernel } from '../../../scripts/kernel.ts'
import { present } from '../../../scripts/packages.ts'
import type { TestFile } from '../../lanes.ts'
import type { Outcome } from '../../reporter.ts'
import { patient } from '../patience.ts'
import { initrd } from './initrd.ts'

const ROOT = join(import.meta.dir, '../../..')
const QEMU = 'qemu-system-x86_64'
/** A machine that takes longer is stuck, and is switched off. Overridden by PLUMB_VM_LIMIT_S. */
const LIMIT_MS = patient(Number(process.env['PLUMB_VM_LIMIT_S'] ?? 2100) * 1000)
const MEMORY = ['-m', '3072']
// Software only, so that it runs in a virtual machine, too. Two network cards, on one wire that leads nowhere else;
// tests find them by these addresses.
const DEVICES = [
  ...'-M pc,hpet=off -nodefaults -no-user-config -display none -no-reboot -device virtio-rng-pci -device virtio-serial-pci'.split(
    ' ',
  ),
  ...[
    '-fsdev',
    'local,id=root,path=/,security_model=none,readonly=on,multidevs=remap',
    '-device',
    'virtio-9p-pci,fsdev=root,mount_tag=root',
  ],
  ...[1, 2].flatMap((n) => [
    '-netdev',
    `hubport,id=net${n},hubid=0`,
    '-device',
    `virtio-net-pci,netdev=net${n},mac=52:54:00:00:00:0${n},addr=0x1${n},romfile=`,
  ]),
]
/**
 * How the machine's time passes. In `real` time it has two processors. In `counted` time it has one, and each of its
 * instructions takes a nanosecond of its clock. So a time in it is a number of instructions, whatever else this machine
 * does. When nothing runs in it, its clock jumps to the next timer (qemu's manual, -icount). Each step of a string
 * instruction counts there. With ERMS the kernel clears and copies memory a byte a step: a page would be 4,096
 * instructions, and half of a stream. So the processor has none, and a step is 8 bytes.
 */
export type Clock = 'real' | 'counted'
const CLOCKS: Readonly<Record<Clock, readonly string[]>> = {
  real: '-accel tcg,thread=multi -smp 2 -cpu max'.split(' '),
  counted: '-accel tcg,thread=single -icount shift=0,sleep=off -smp 1 -cpu max,-erms,-fsrm'.split(' '),
}
/** Variables of tests that also count in the machine. */
const PASSED = ['PLUMB_HISTORIES', 'PLUMB_KILLS', 'PLUMB_PATIENCE', 'PLUMB_SEED', 'PLUMB_TEST_LIMIT_S']
const CONSOLE = 'console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off nokaslr random.trust_cpu=on net.ifnames=0'

/** What the runner in the machine says of one file. */
export interface Line {
  readonly name: string
  readonly outcomes: readonly Outcome[]
  readonly ms: number
  readonly said: string
}

/** Why there can be no machine here, undefined when there can. */
export function missing(): string | undefined {
  if (process.arch !== 'x64') return `its kernel is for x64, this machine is ${process.arch}`
  if (process.getuid?.() !== 0) return 'it needs root, to read all of this machine'
  const absent = [QEMU, 'modprobe', 'setpriv'].find((one) => !present(one))
  if (absent) return `${absent} is not installed (npm run setup -- test)`
  return kernel() ? undefined : "there is no kernel for it: the distribution's could not be had (npm run setup -- test)"
}

/**
 * Runs test files in a virtual machine that has the distribution's kernel and sees this machine's files, by the same
 * runner, and tells of each as it ends. A file where the machine did not tell has failed, with what its console showed
 * last.
 */
export async function inMachine(files: readonly TestFile[], tell: (line: Line) => void): Promise<void> {
  const started = performance.now()
  const left = new Set(files.map(({ name }) => name))
  let rest = ''
  const last = await commandInMachine(
    `${process.execPath} test/run.ts ${files.map(({ path }) => path).join(' ')} >/dev/output 2>&1`,
    (text) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines.filter(Boolean).map((one): Line => JSON.parse(one))) {
        left.delete(line.name)
        tell(line)
      }
    },
  )
  for (const [i, name] of [...left].entries())
    tell({
      name,
      ms: performance.now() - started,
      said: '',
      outcomes: [{ state: 'failed', title: 'the file', ms: 0, text: i === 0 ? last : (last.split('\n')[0] ?? '') }],
    })
}

/**
 * Runs a line of the shell in such a machine. `hear` gets what it writes to /dev/reports as it comes. Gives how the
 * machine ended: a line, then what its console and /dev/output showed last.
 */
export async function commandInMachine(
  line: string,
  hear: (text: string) => void,
  clock: Clock = 'real',
): Promise<string> {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-machine-'))
  let read = 0
  const look = () => {
    const text = textOf(join(dir, 'reports'))
    if (text.length > read) hear(text.slice(read))
    read = text.length
  }
  try {
    const running = boot(dir, kernel() as Kernel, line, clock)
    for (let isOver = false; !isOver; look())
      isOver = await Promise.race([running.then(() => true), Bun.sleep(200).then(() => false)])
    const { timedOut, stderr } = await running
    const why = timedOut
      ? `the machine was switched off after ${LIMIT_MS / 1000} s`
      : 'the machine ended without a word of this file'
    return [
      why,
      stderr,
      'its console showed last:',
      tail(join(dir, 'console')),
      'and the tests printed last:',
      tail(join(dir, 'output')),
    ]
      .filter(Boolean)
      .join('\n')
  } finally {
    rmSync(dir, { recursive: true })
  }
}

async function boot(
  dir: string,
  of: Kernel,
  line: string,
  clock: Clock,
): Promise<{ timedOut: boolean; stderr: string }> {
  writeFileSync(join(dir, 'initrd'), await initrd(of, job(of, line)))
  for (const name of ['console', 'reports', 'output']) writeFileSync(join(dir, name), '')
  const port = (name: string) => [
    '-chardev',
    `file,id=${name},path=${join(dir, name)}`,
    '-device',
    `virtserialport,chardev=${name},name=${name}`,
  ]
  const argv = [
    QEMU,
    ...CLOCKS[clock],
    ...MEMORY,
    ...DEVICES,
    ...port('reports'),
    ...port('output'),
    '-kernel',
    of.image,
    '-initrd',
    join(dir, 'initrd'),
    '-append',
    CONSOLE,
    '-serial',
    `file:${join(dir, 'console')}`,
  ]
  // A kill of the runner switches the machine off, too.
  return execa('setpriv', ['--pdeathsig', 'KILL', ...argv], {
    reject: false,
    stdin: 'ignore',
    timeout: LIMIT_MS,
    killSignal: 'SIGKILL',
  })
}

/**
 * The machine's first process. The tests' program is copied into memory: there its hard links are one file, as on this
 * machine, and it starts fast.
 */
function job({ release, modules }: Kernel, line: string): string {
  return `
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C NODE_ENV=test PLUMB_GUEST=/dev/reports ${passed()}
mkdir -p /dev/pts /dev/shm /lib/modules/${release}
mount -t devpts d /dev/pts; mount -t tmpfs t /dev/shm; mount -t cgroup2 c /sys/fs/cgroup
mount --bind ${modules} /lib/modules/${release}
for port in /sys/class/virtio-ports/*; do ln -s /dev/\${port##*/} /dev/$(cat $port/name); done
ip link set lo up
# The module ipip would put a tunl0 into the namespaces of all tests.
echo 1 >/proc/sys/net/core/fb_tunnels_only_for_init_net
# Nobody here loads what hardware asks for.
modprobe virtio_net
# The first hook of ingress and the last one patch the kernel's code for received packets. A processor of this machine may
# not notice, and then runs into the breakpoint for ever (qemu with two processors). So one hook stays.
nft 'add table netdev machine; add chain netdev machine ingress { type filter hook ingress device lo priority 0; }'
# Where the network cards are.
touch /machine-netns; mount --bind /proc/self/ns/net /machine-netns
mkdir /run/dist; cp -a ${ROOT}/dist/. /run/dist; mount --bind /run/dist ${ROOT}/dist
cd ${ROOT}
${line} </dev/null
sync; echo o >/proc/sysrq-trigger; sleep 60`
}

// Numbers alone, as the value becomes a part of a script.
function passed(): string {
  return PASSED.flatMap((name) =>
    /^\d+(\.\d+)?$/.test(process.env[name] ?? '') ? [`${name}=${process.env[name]}`] : [],
  ).join(' ')
}

function textOf(path: string): string {
  return existsSync(path) ? readFileSync(path, 'utf8') : ''
}

function tail(path: string): string {
  return textOf(path).trimEnd().split('\n').slice(-20).join('\n')
}
