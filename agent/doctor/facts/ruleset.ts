import type { Run } from '../../../lib/os/run.ts'
import { ExecError } from '../../../lib/text/errors.ts'
import type { RuleChange } from '../../kernel/rule-events.ts'
import type { Expression, ForwardChain, RulesOf } from '../forward-chains.ts'
import type { Fact } from './facts.ts'

/** A chain with its rules. */
export interface Chain extends ForwardChain {
  readonly rules: readonly Rule[]
}
/** A rule as `nft -j` has it. */
export interface Rule {
  readonly handle: number
  readonly comment?: string
  readonly expr: readonly Expression[]
}
/** The chains of all tables. */
export interface Ruleset {
  readonly chains: readonly Chain[]
  /** What nft says of tables that it does not know how to print. It leaves them out, and ends with 0. */
  readonly unread?: string
}

/** Whether the chain is in a table of plumb. */
export function isOurs({ table }: ForwardChain): boolean {
  return /^plumb([-_]|$)/.test(table)
}

/**
 * Whether a change may be of a chain that stops packets of pods, and is not one of plumb. `own` are the tables of plumb.
 * kube-proxy and portmap change chains of their own with each Service and each pod. Pure.
 */
export function isOfOthers({ family, table, what, chain }: RuleChange, own: ReadonlySet<string>): boolean {
  if (what === 'other' || family === undefined || own.has(table)) return false
  return family === 'inet' || table !== 'nat' || !/^(KUBE|CNI)-/.test(chain ?? '')
}

/** The rules of the chains in the table of a chain, as `drops` wants them. */
export function rulesIn(chains: readonly Chain[], { family, table }: ForwardChain): RulesOf {
  const isHere = (one: Chain, name: string) => one.family === family && one.table === table && one.name === name
  return (name) => chains.find((one) => isHere(one, name))?.rules.map(({ expr }) => expr) ?? []
}

/** No chains. */
export const NO_CHAINS: Ruleset = { chains: [] }

interface Row {
  readonly chain?: ForwardChain
  readonly rule?: Rule & { readonly family: string; readonly table: string; readonly chain: string }
}

/** The chains of nftables with their rules, those of iptables-nft among them. Sets come without their elements. */
export const ruleset: Fact<Ruleset> = { read: ({ run }) => readRuleset(run), inAgent: 'given' }

/** Reads all chains and rules. Sets come without elements, whose number does not matter then. Throws Error. */
export async function readRuleset(run: Run): Promise<Ruleset> {
  const argv = ['nft', '-j', '-t', '-a', 'list', 'ruleset']
  const { status, stdout, stderr } = await run(argv, '')
  const [line = ''] = stderr.split('\n', 1)
  if (status !== 0) throw new ExecError(argv, undefined, line)
  const listed = (stdout.trim() === '' ? {} : JSON.parse(stdout)) as { nftables?: readonly Row[] }
  const unread = /^netlink: Error: .*$/m.exec(stderr)?.[0]
  const rules = new Map<string, Rule[]>()
  const rows = listed.nftables ?? []
  for (const { rule } of rows) {
    if (!rule) continue
    const key = `${rule.family} ${rule.table} ${rule.chain}`
    const all = rules.get(key) ?? []
    all.push(rule)
    rules.set(key, all)
  }
  return {
    ...(unread !== undefined && { unread }),
    chains: rows.flatMap(({ chain }) =>
      chain ? [{ ...chain, rules: rules.get(`${chain.family} ${chain.table} ${chain.name}`) ?? [] }] : [],
    ),
  }
}
