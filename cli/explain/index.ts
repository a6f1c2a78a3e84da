// `plumb cni explain` shows what ADD or DEL would run, without running it. Begin with `explainAdd` and `explainDel`
// below. explanation.ts defines the data of an explanation, text.ts prints the data for people.
import { statSync } from 'node:fs'
import type { Plugin } from '../../lib/cni/plugin.ts'
import { compare } from '../../lib/cni/versions.ts'
import { findPlugin } from '../../lib/runtime/invoke.ts'
import type { Json, PluginConf } from '../../lib/runtime/network-list.ts'
import { restored } from '../../lib/runtime/requests.ts'
import type { Resource } from '../../lib/state/resource.ts'
import { errorOf, ValueError } from '../../lib/text/errors.ts'
import type { NetnsPath } from '../../lib/text/values.ts'
import { readConf } from '../../lib/verbs/call.ts'
import { Refused } from '../output.ts'
import { adding, GIVEN } from './adding.ts'
import { asPlugin, callOf, type Subject } from './calls.ts'
import type { ExplainedPlugin, Explanation } from './explanation.ts'
import { deleting } from './removing.ts'
import { isOurs, visible } from './visibility.ts'

/** The path that stands for NETNS when the user gives none. */
export const EXAMPLE = '/run/netns/POD' as NetnsPath

/**
 * Explains ADD of a list, plugin by plugin. Starts no process, takes no lock and writes nothing. Throws Refused with
 * the error that ADD would answer. Throws ValueError for a `--prev-result` when all programs of the list are plumb's.
 */
export async function explainAdd(subject: Subject): Promise<Explanation> {
  const { list, at, cached } = subject
  const plugins = (await chain(subject)).map(({ explained }) => explained)
  if (subject.answer && plugins.every(({ isPlumb, pool }) => isPlumb && pool?.about !== GIVEN))
    throw new ValueError(`--prev-result is what a program that is not plumb's answers: ${list.name} asks none`)
  const result = plugins.at(-1)?.result
  const again = cached
    ? [`${at.ifname} of ${at.containerId} is attached to ${list.name} already: ADD would be refused until DEL`]
    : []
  const { notes, ...names } = who(subject, 'ADD would be refused until it is')
  return { command: 'ADD', ...names, notes: [...notes, ...again], plugins, ...(result && { result }) }
}

/** Explains DEL of a list. The plugins run in reverse order. Throws Refused with the error that DEL would answer. */
export async function explainDel(subject: Subject): Promise<Explanation> {
  const { list, cached } = subject
  const whole = { ...subject, at: restored(subject.at, cached) }
  // This user may be unable to read the notes of chained plugins, or the notes do not exist yet. Then DEL is explained
  // with the notes that ADD would write. A configuration that ADD refuses does not make DEL fail.
  const made = await chain({ ...whole, at: { ...whole.at, netns: whole.at.netns || EXAMPLE } }).catch(() => [])
  const prevResult = cached?.result ?? made.at(-1)?.explained.result
  const plugins: ExplainedPlugin[] = []
  for (const [i, conf] of [...list.plugins.entries()].reverse())
    plugins.push(
      await deleted(whole, conf, compare(list.cniVersion, '0.4.0') < 0 ? undefined : prevResult, made[i]?.own),
    )
  return { command: 'DEL', ...who(whole, 'a DEL now would run nothing in it'), plugins }
}

/** One plugin of the chain. `own` is what the plugin would note as its own. The next plugin gets the result `next`. */
interface Step {
  readonly explained: ExplainedPlugin
  readonly own?: readonly Resource[] | undefined
  readonly next: Json | undefined
}

async function chain(subject: Subject): Promise<Step[]> {
  const steps: Step[] = []
  for (const conf of subject.list.plugins) steps.push(await added(subject, conf, steps.at(-1)))
  return steps
}

async function added(subject: Subject, conf: PluginConf, before: Step | undefined): Promise<Step> {
  const { type } = conf
  const { file, plugin } = await found(subject, type)
  const given = before?.next
  if (!plugin) {
    const told = await foreign(subject, type, file, 'ADD', given)
    const explained = { type, file, isPlumb: false, runs: [], isWhole: false, ...told }
    return { explained, next: subject.answer ?? given }
  }
  return asPlugin(type, 'ADD', async () => {
    const call = callOf('ADD', subject, conf, plugin, given)
    if (before && !given && (plugin.role === 'chained' || plugin.role === 'custom')) {
      readConf(plugin, call)
      const fact = 'what it makes depends on the result before it, which is not known'
      const notes = [`${fact}: --prev-result FILE with it shows it`]
      return { explained: { type, file, isPlumb: true, runs: [], isWhole: false, notes }, next: undefined }
    }
    const { own, ...told } = await adding(plugin, call, subject.answer)
    return { explained: { type, file, isPlumb: true, ...told }, next: told.result, own }
  })
}

async function deleted(
  subject: Subject,
  conf: PluginConf,
  prevResult: Json | undefined,
  own: readonly Resource[] | undefined,
): Promise<ExplainedPlugin> {
  const { type } = conf
  const { file, plugin } = await found(subject, type)
  if (!plugin) {
    const told = await foreign(subject, type, file, 'DEL', undefined)
    return { type, file, isPlumb: false, runs: [], isWhole: false, ...told }
  }
  return asPlugin(type, 'DEL', async () => {
    const told = await deleting(plugin, callOf('DEL', subject, conf, plugin, prevResult), own)
    return { type, file, isPlumb: true, ...told }
  })
}

async function found({ host, load }: Subject, type: string): Promise<{ file: string; plugin: Plugin | undefined }> {
  try {
    const file = findPlugin(type, host.path)
    return { file, plugin: isOurs(file) ? await load(type) : undefined }
  } catch (cause) {
    const { code, msg, details } = errorOf(cause)
    throw new Refused(code, msg, details, { cause })
  }
}

async function foreign(
  { answer, load }: Subject,
  type: string,
  file: string,
  command: string,
  given: Json | undefined,
): Promise<Pick<ExplainedPlugin, 'notes' | 'result'>> {
  const whose = (await load(type)) ? "not this plumb's (where it is another's, that one explains it)" : "not plumb's"
  const fact = `${file} is ${whose}: it is run as a program with CNI_COMMAND=${command}, and what it runs is its own`
  if (command === 'DEL') return { notes: [fact] }
  if (answer) return { notes: [fact, 'it answers what --prev-result says'], result: answer }
  const unknown = 'what it answers is not known'
  if (!given) return { notes: [fact, `${unknown}; --prev-result FILE says it`] }
  const guess = 'what follows is as if it answered what it was given; --prev-result FILE says otherwise'
  return { notes: [fact, `${unknown}: ${guess}`] }
}

function who(
  { list, at, isExample }: Subject,
  missing: string,
): Pick<Explanation, 'network' | 'containerId' | 'ifname' | 'netns' | 'notes'> {
  const notes: string[] = []
  if (isExample) notes.push(`NETNS was not given: ${at.netns} stands for it`)
  else if (isMissing(at.netns)) notes.push(`${at.netns} is not there: ${missing}`)
  return { network: list.name, containerId: at.containerId, ifname: at.ifname, netns: at.netns, notes }
}

// A path that this user may not look at is not reported as missing, because it may exist.
function isMissing(path: string): boolean {
  return path !== '' && visible(() => statSync(path, { throwIfNoEntry: false }) === undefined) === true
}
