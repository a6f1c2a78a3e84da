// Makes one fault, and records what the network, its status and the doctor say of it.

import type { Report } from '../doctor.ts'
import { until } from '../harness.ts'
import type { Fault } from './faults.ts'
import { brokenOf, type Path, pathsOf } from './matrix.ts'
import { ask, type Place, redOf, type World } from './world.ts'

/** What was seen of a fault. */
export interface Verdict {
  readonly kind: string
  readonly text: string
  /** The paths that it broke. Empty when it broke none, or when the agent repaired it. */
  readonly broken: readonly string[]
  /** Seconds until a node that it concerns was not `ready` any more. Absent: it never was. */
  readonly redAfter?: number
  /** A node is red, though no path is broken. */
  readonly falseAlarm?: string
  /** The doctor on one of the two ends names what was changed. */
  readonly isNamed: boolean
  /** It names a place on the path. */
  readonly isPlaced: boolean
  /** It said on a node that the fault concerns that nothing is wrong. */
  readonly isDenied: boolean
  /** Commands were printed; they mended it. */
  readonly hasCommands: boolean
  readonly isMended: boolean
  readonly said: readonly string[]
  readonly doctorMs: number
  /** The world is as before. */
  readonly isHealed: boolean
}

/** The agent repairs many faults; what is broken after so long is. */
const REPAIR_MS = 4000
/** A node that is red so long after a fault that broke nothing is a false alarm. */
const CALM_MS = 12_000
const [LOOK_MS, HEAL_MS, MEND_MS] = [250, 40_000, 8000]
/** Words of a hop that a finding names. */
const PLACED =
  /\bat (?:the )?(sender|link|guard|service|route|rules|policy|source|exit|tunnel|far [a-z]+|receiver|answer)\b/

/** Judges one fault. `patienceMs` is how long a red status is waited for. */
export async function judge(world: World, fault: Fault, patienceMs: number): Promise<Verdict> {
  const paths = pathsOf(world)
  const began = performance.now()
  const sinceMs = () => performance.now() - began
  const made = await fault.ns.exec(['sh', '-c', fault.make])
  const told = { kind: fault.kind, text: made.status === 0 ? fault.text : `${fault.text} [${made.stderr.trim()}]` }
  const red = watchRed(world)
  const { broken, ...seen } = await judged(world, fault, paths, red, sinceMs, patienceMs)
  red.end()
  await fault.ns.exec(['sh', '-c', fault.undo])
  const isHealed = await until(
    async () => (await brokenOf(paths)).length === 0 && (await redOf(world.places)).length === 0,
    HEAL_MS,
  )
    .then(() => true)
    .catch(() => false)
  return { ...told, broken: broken.map(({ name }) => name), ...seen, isHealed }
}

async function judged(
  world: World,
  fault: Fault,
  paths: readonly Path[],
  red: ReturnType<typeof watchRed>,
  sinceMs: () => number,
  patienceMs: number,
) {
  await Bun.sleep(REPAIR_MS)
  const broken = await brokenOf(paths)
  if (broken.length === 0) {
    await until(() => sinceMs() > CALM_MS, 2 * CALM_MS)
    const falseAlarm = (await redOf(world.places)).map(({ name, why }) => `${name}: ${why}`).join('; ')
    const none = {
      isNamed: false,
      isPlaced: false,
      isDenied: false,
      hasCommands: false,
      isMended: false,
      said: [],
      doctorMs: 0,
    }
    // A fault may be slow: what breaks a path late is not red for nothing.
    const late = falseAlarm === '' ? [] : await brokenOf(paths)
    return { broken: [], ...none, ...(falseAlarm !== '' && late.length === 0 && { falseAlarm }) }
  }
  const redAfter = await red.after(patienceMs)
  const ends = endsOf(world, fault, broken)
  const reports = await Promise.all(ends.map((place) => ask<Report>(place, 'doctor')))
  const texts = reports.flatMap(({ report }) =>
    report.findings.map(({ text, commands }) => [text, ...commands].join('\n')),
  )
  const commands = reports.map(({ report }) => report.findings.flatMap((one) => one.commands))
  const hasCommands = commands.some((all) => all.length > 0)
  return {
    broken,
    ...(redAfter !== undefined && { redAfter }),
    isNamed: texts.some((text) => fault.names.every((name) => name.test(text))),
    isPlaced: texts.some((text) => PLACED.test(text)),
    isDenied: reports.some(({ status, report }) => status === 0 && report.findings.length === 0),
    hasCommands,
    isMended: hasCommands && (await isMendedBy(ends, commands, paths)),
    said: reports.flatMap(({ report, status }, i) => [
      `${ends[i]?.node.name} (${status})`,
      ...report.findings.map((one) => `  ${one.code} ${one.text}`),
    ]),
    doctorMs: Math.max(...reports.map(({ ms }) => ms)),
  }
}

// The node of the fault, and a node at the other end of a path that it broke.
function endsOf({ places }: World, { nodes }: Fault, broken: readonly Path[]): Place[] {
  const [first = 0] = nodes.length === 1 ? nodes : (broken[0]?.ends ?? [])
  const far = broken
    .flatMap(({ ends }) => ends)
    .find((end) => end !== first && broken.some((one) => one.ends.length === 2 && one.ends.includes(end)))
  return [first, ...(far === undefined ? [] : [far])].map((i) => places[i] as Place)
}

async function isMendedBy(
  ends: readonly Place[],
  commands: readonly (readonly string[])[],
  paths: readonly Path[],
): Promise<boolean> {
  for (const [i, { within }] of ends.entries()) {
    const all = commands[i] ?? []
    // The agent of this node is no service of the machine.
    if (all.length > 0) await within.exec(['timeout', '20', 'sh', '-c', ['systemctl() { :; }', ...all].join('\n')])
  }
  return until(async () => (await brokenOf(paths)).length === 0, MEND_MS).then(
    () => true,
    () => false,
  )
}

// Looks all the time at whether a node is red: a fault may be seen at any end of its paths.
function watchRed({ places }: World) {
  const began = performance.now()
  let [at, isOver]: [number | undefined, boolean] = [undefined, false]
  void (async () => {
    for (; !isOver && at === undefined; await Bun.sleep(LOOK_MS))
      if ((await redOf(places)).length > 0) at = performance.now() - began
  })()
  return {
    async after(ms: number): Promise<number | undefined> {
      while (at === undefined && performance.now() - began < ms) await Bun.sleep(LOOK_MS)
      return at === undefined ? undefined : Math.round(at / 100) / 10
    },
    end() {
      isOver = true
    },
  }
}

/** The table of many verdicts, as text. */
export function tableOf(all: readonly Verdict[]): string {
  const broken = all.filter((one) => one.broken.length > 0)
  const calm = all.filter((one) => one.broken.length === 0)
  const part = (some: readonly Verdict[], of: readonly Verdict[]) =>
    `${some.length} of ${of.length} (${of.length === 0 ? '-' : Math.round((1000 * some.length) / of.length) / 10} %)`
  const printed = broken.filter((one) => one.hasCommands)
  return [
    `faults ${all.length}, of which ${broken.length} broke a path`,
    `red within 10 s: ${part(
      broken.filter(({ redAfter = Infinity }) => redAfter <= 10),
      broken,
    )}; ever: ${part(
      broken.filter(({ redAfter }) => redAfter !== undefined),
      broken,
    )}`,
    `doctor names the object: ${part(
      broken.filter((one) => one.isNamed),
      broken,
    )}; the object or a hop: ${part(
      broken.filter((one) => one.isNamed || one.isPlaced),
      broken,
    )}`,
    `doctor says that nothing is wrong: ${part(
      broken.filter((one) => one.isDenied),
      broken,
    )}`,
    `printed commands mend: ${part(
      printed.filter((one) => one.isMended),
      printed,
    )}`,
    `red though nothing is broken: ${part(
      calm.filter((one) => one.falseAlarm !== undefined),
      calm,
    )}`,
  ].join('\n')
}
