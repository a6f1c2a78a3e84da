// The alphabet of the histories with flows in the fast path: steps that open such flows, and those of steps.ts that end
// them.
import { PROTOCOLS, type Target } from './ends.ts'
import type { Fixture } from './fixture.ts'
import { takesPart } from './offloaded.ts'
import type { Letter, Step } from './steps.ts'
import { against, attach, lag, lift, match, type Numbers, object, only, policy, relabel, restart } from './steps.ts'

/** How many flows there are at most, and how many one step opens. */
const [MOST_FLOWS, AT_ONCE] = [8, 5]
const TRIES = 40

/** Opens flows that take the fast path: of both protocols and families, between pods, and with the host outside. */
const open: Letter = (fixture, random) => {
  const chosen: { readonly text: string; work(): Promise<void> }[] = []
  const used = new Set<string>()
  for (let tries = 0; tries < TRIES && chosen.length < AT_ONCE; tries++) {
    const one = flowOf(fixture, random)
    if (one === undefined || used.has(one.text)) continue
    used.add(one.text)
    chosen.push(one)
  }
  if (chosen.length === 0) return undefined
  return {
    text: chosen.map(({ text }) => text).join(', '),
    isStrict: true,
    async work() {
      const most = MOST_FLOWS - chosen.length
      for (const old of fixture.flows.slice(0, Math.max(0, fixture.flows.length - most))) await fixture.stop(old)
      for (const { work } of chosen) await work()
    },
  }
}

function flowOf(fixture: Fixture, random: Numbers) {
  const ends = [...fixture.living, ...fixture.living, fixture.outside]
  const [from, to] = [ends[random(ends.length)], ends[random(ends.length)]]
  const family = ([4, 6] as const)[random(2)]
  const protocol = PROTOCOLS[random(2)]
  const ip = to?.ips.find((one) => one.includes(':') === (family === 6))
  if (!from || !protocol || !to || from === to || ip === undefined || !takesPart(from, to)) return undefined
  const target: Target = { ip }
  if (!fixture.canFlow(from, target, protocol, false) || !fixture.passes(from, target, protocol)) return undefined
  const text = `${protocol} flow from ${from.name} (${from.ips}) to ${to.name} (${ip})`
  return { text, work: () => fixture.flow(from, target, protocol, false) }
}

// Another program removes a table, or empties the chain that adds to the fast path.
const disturb: Letter = (fixture, random) => {
  if (fixture.isAway) return undefined
  const commands = [
    'delete table inet plumb_policy',
    'delete table inet plumb_policy',
    'delete table inet plumb_fast_path',
    'flush chain inet plumb_fast_path forward',
    'flush ruleset',
  ]
  const command = commands[random(commands.length)] as string
  // Meanwhile all that is sent passes, or nothing is translated.
  return { text: `nft ${command}`, isStrict: false, work: () => fixture.nft(command) }
}

// A change of policy comes while nft fails.
const failing: Letter = (fixture, random) => {
  if (fixture.isBlind) return undefined
  const step = [against, lift, policy][random(3)]?.(fixture, random)
  return (
    step && {
      text: `nft fails; meanwhile ${step.text}`,
      isStrict: false,
      work: () => fixture.whileNftFails(async () => void (await step.work())),
    }
  )
}

/** The agent learns at once of one change: the next transaction is that of this change. */
const one =
  (letter: Letter): Letter =>
  (fixture, random) => {
    const step: Step | undefined = letter(fixture, random)
    return step && { ...step, isOne: !step.isStrict }
  }

const ALPHABET: readonly (readonly [letter: Letter, weight: number])[] = [
  [open, 4],
  [one(object), 2],
  [one(relabel), 2],
  [one(match), 4],
  [one(policy), 4],
  [one(against), 10],
  [one(only), 6],
  [one(lift), 4],
  [attach, 2],
  [restart, 1],
  [lag, 1],
  [disturb, 2],
  [failing, 1],
]
const ALL = ALPHABET.flatMap(([letter, weight]) => Array.from({ length: weight }, () => letter))

/** The next step of such a history. */
export function offloadedStepOf(fixture: Fixture, random: Numbers): Step {
  for (;;) {
    const step = ALL[random(ALL.length)]?.(fixture, random)
    if (step) return step
  }
}

/** The step that begins a history: without policies all flows are allowed. */
export function openAllowed(fixture: Fixture, random: Numbers): Step {
  for (;;) {
    const step = open(fixture, random)
    if (step) return step
  }
}
