// Faults that planted.ts puts into a copy of the sources. Each was in plumb once, or could have been.

/** What a fault changes: a text of a file, which is there once, and what stands in its place. */
export interface Change {
  readonly file: string
  readonly text: string
  readonly becomes: string
}

const [GUARD, FLOWS, STATE, RULES] = [
  'agent/policy/guard.ts',
  'agent/policy/flows.ts',
  'agent/policy/state.ts',
  'agent/policy/rules.ts',
]
const [SETS, TABLE] = ['agent/policy/peer-sets.ts', 'agent/policy/table.ts']
const [PROGRAM, CONNECTIONS] = ['agent/policy/program.ts', 'agent/policy/connections.ts']
const SELF = `...FAMILIES.map((family) => \`\${WORD[family]} saddr . \${WORD[family]} daddr @self\${family} \${PASSES}\`)`

/** The faults, by what a user would see. */
export const FAULTS: Readonly<Record<string, readonly Change[]>> = {
  'a frame with a tag passes': [
    { file: GUARD, text: "'ether type != { ip, ip6, arp } counter drop'", becomes: "'ether type 0xffff counter drop'" },
  ],
  'a packet from the address of another pod passes': [
    { file: GUARD, text: "'iifname != @links accept'", becomes: "'accept'" },
  ],
  'an ended connection begins again from the side that answers': [
    {
      file: FLOWS,
      text: 'setBit(\n        closed.filter((one) => !isEnded(one)),\n        ENDED_BIT,\n        true,\n      )',
      becomes: 'forget(closed)',
    },
    { file: FLOWS, text: '  connectionPieces,\n', becomes: '  connectionPieces,\n  forget,\n' },
  ],
  'a load of the table forgets what has ended': [
    {
      file: PROGRAM,
      text: 'await load(state, options, run)\n    state.tightenAll()',
      becomes: 'await load(state, options, run)\n    await reviewEnded(() => true)',
    },
    { file: PROGRAM, text: 'import { Guard }', becomes: "import { reviewEnded } from './flows.ts'\nimport { Guard }" },
  ],
  'an open connection of a pod that comes to match a Deny goes on': [
    {
      file: SETS,
      text: 'if (set.isOfTier && !before.includes(element)) this.#tightened',
      becomes: 'if (false) this.#tightened',
    },
  ],
  'an open connection to a Node that comes to match a Deny goes on': [
    { file: SETS, text: 'if (!this.#elements.wanted(name).has(ip)) this.#tightened.add(ip)', becomes: '' },
  ],
  'an open connection of a peer that no rule allows any more goes on': [
    { file: SETS, text: 'continue\n      this.#tightened.add(addressIn(element))', becomes: 'continue' },
  ],
  'an open connection of a pod that a policy selects goes on': [
    {
      file: STATE,
      text: 'if (!isSame || has(before, ip) !== has(now, ip))',
      becomes: 'if (has(before, ip) !== has(now, ip))',
    },
  ],
  'a start ends what the node has open to its own pods': [
    { file: FLOWS, text: 'if (own.has(source) && state.isLocal(destination)) return true', becomes: '' },
  ],
  'a pod is admitted under the labels of a former pod of its name': [
    {
      file: 'agent/policy/endpoints.ts',
      text: 'return uid === undefined || object.uid === undefined || uid === object.uid',
      becomes: 'return uid === undefined || object !== undefined',
    },
  ],
  'what a policy has ended stays ended after the policy is gone': [
    {
      file: CONNECTIONS,
      text: 'this.#mayRevive ||= this.#hasEnded || this.#ending !== undefined',
      becomes: 'this.#mayRevive ||= false',
    },
    { file: FLOWS, text: '      revive(own, lives)\n', becomes: '' },
  ],
  'a Deny of a tier does not hold for a pod that reaches itself by a Service': [
    {
      file: RULES,
      text: '...(admin ? [jump(admin)] : []),\n    ...toItself,',
      becomes: `${SELF},\n    ...(admin ? [jump(admin)] : []),`,
    },
    {
      file: RULES,
      text: '[...tiers.map(jump), PASSES]',
      becomes: `[${SELF}, ...tiers.map(jump), PASSES]`,
    },
  ],
  'a pod that the API does not know reaches itself by a Service': [
    {
      file: TABLE,
      text: 'unknown: [`counter',
      becomes: "unknown: ['ip saddr . ip daddr @self4 accept', 'ip6 saddr . ip6 daddr @self6 accept', `counter",
    },
  ],
  'a Deny ends when the API no longer serves its version': [
    { file: 'agent/cluster/served.ts', text: 'this.isAbsent = isAbsent', becomes: 'this.isAbsent = true' },
  ],
}

const [PART, PARTS] = ['agent/parts/policy.ts', 'agent/parts/make.ts']
const AFTER = {
  file: PART,
  text: 'ends && (await this.#connections.endFirst(this.#state.takeTightened(), isAwaited))',
  becomes: 'false',
}

/** Faults that only histories with flows in the fast path can find (offloaded-planted.test.ts). */
export const OFFLOADED_FAULTS: Readonly<Record<string, readonly Change[]>> = {
  'an ended connection goes on by the fast path': [
    { file: PARTS, text: 'const ended = () => fastPath.renew()', becomes: 'const ended = () => Promise.resolve()' },
    { file: PARTS, text: 'suspend: (run) => fastPath.suspend(run)', becomes: 'suspend: () => Promise.resolve()' },
  ],
  'a connection ends after the transaction': [AFTER],
  'the fast path goes after the transaction': [
    { file: PART, text: 'hasEnded ? [this.given.suspend] : []', becomes: 'hasEnded ? [] : []' },
  ],
  'the fast path is renewed before connections end': [
    AFTER,
    {
      file: CONNECTIONS,
      text: 'if ((await review(addresses, this.#lives())) > 0) {\n          this.#hasEnded = true\n          await this.#listener.ended()\n        }',
      becomes:
        'await this.#listener.ended()\n        if ((await review(addresses, this.#lives())) > 0) this.#hasEnded = true',
    },
  ],
  'an ended connection begins again from the side that answers': FAULTS[
    'an ended connection begins again from the side that answers'
  ] as readonly Change[],
  'an ended connection takes the fast path again where another program has removed the rules': [
    { file: FLOWS, text: 'ended += closed.filter((one) => isEnded(one) && one.isOffloaded).length', becomes: '' },
  ],
  'allowed connections do not come back to the fast path': [
    { file: 'agent/parts/fast-path.ts', text: "this.queue.add('suspended', LINKS_MS)", becomes: '' },
  ],
}
