import { linkSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import type { ExplainedRun, Explanation } from '../../../cli/explain/explanation.ts'
import { explainAdd, explainDel } from '../../../cli/explain/index.ts'
import { explainedText as told } from '../../../cli/explain/text.ts'
import { fuse } from '../../../cli/fuse.ts'
import type { Io } from '../../../lib/cni/call.ts'
import { type Key, listCached, readCached } from '../../../lib/runtime/cache.ts'
import { loadNetwork, type NetworkList, parseJson, parseNetwork } from '../../../lib/runtime/network-list.ts'
import { requestOf, restored } from '../../../lib/runtime/requests.ts'
import { gcNetwork } from '../../../lib/runtime/runtime.ts'
import { parse } from '../../../lib/text/values.ts'
import { givenBy } from '../cases.ts'
import { type Given, strangeIn } from '../grammar.ts'
import type { Target } from '../target.ts'
import { textOf } from './agent.ts'
import { named } from './node.ts'

const BASE = '/run/fuzz'
const [CONF, BIN, CACHE] = [`${BASE}/net.d`, `${BASE}/bin`, `${BASE}/cni`]
const NETNS = parse.netns('/run/netns/fuzz')
const KEY: Key = { network: parse.network('fuzz'), containerId: parse.containerId('c1'), ifname: parse.ifname('eth0') }

/**
 * What the runtime's side of CNI reads: lists of plugins, and what it remembers of attachments. `load` finds the
 * plugins by name; `names` are those there are.
 */
export function runtimeTargets(load: Io['plugin'], names: readonly string[]): readonly Target[] {
  return [
    {
      name: 'conflist',
      async feed({ list, dropin, args }) {
        furnish(names)
        writeFileSync(`${CONF}/10-fuzz.conflist`, list ?? '')
        if (dropin) writeFileSync(`${CONF}/fuzz/10-more.conf`, dropin)
        const network = loadNetwork(CONF)
        const at = {
          ...KEY,
          network: network.name,
          netns: NETNS,
          args: [],
          capabilityArgs: parseJson(textOf(args), 'the arguments') as never,
        }
        const subject = {
          list: network,
          at,
          cached: undefined,
          isExample: false,
          host: { path: [BIN], cacheDir: CACHE, warn() {} },
          load,
          answer: undefined,
        }
        const given = givenBy({ env: { netns: NETNS, ifname: 'eth0' }, stdin: `[${network.text},${textOf(args)}]` })
        return [...judged(await explainAdd(subject), given), ...judged(await explainDel(subject), given)]
      },
    },
    {
      name: 'fuse',
      feed({ list }) {
        const { list: fused, changes } = fuse(parseJson(textOf(list), 'list'))
        // What comes of it is a list for the same runtime.
        JSON.stringify(fused)
        return changes.flatMap((change) =>
          /\p{Cc}/u.test(change) || /function|native code|\[object/.test(change) || change.length > 16_384
            ? [`it says ${JSON.stringify(change.slice(0, 300))}`]
            : [],
        )
      },
    },
    {
      name: 'cache',
      async feed({ name, entry }) {
        furnish(names)
        const path = `${CACHE}/results/${named(name)}`
        for (const one of new Set([path, `${CACHE}/results/fuzz-c1-eth0`])) writeFileSync(one, entry ?? '')
        const { entries, unreadable } = listCached(CACHE)
        if (entries.length + unreadable.length === 0) return ['neither read nor named']
        const list = parseNetwork(
          '{"cniVersion":"1.1.0","name":"fuzz","plugins":[{"type":"none","capabilities":{"mac":true}}]}',
          'list',
        ) as NetworkList
        await gcNetwork(list, [], { path: [], cacheDir: CACHE }, { dryRun: true })
        const cached = readCached(CACHE, KEY)
        const { env, config } = requestOf(
          'DEL',
          list,
          list.plugins[0] as never,
          restored({ ...KEY, netns: '' }, cached),
          cached?.result,
        )
        JSON.parse(config)
        return Object.entries(env).flatMap(([variable, value]) =>
          typeof value !== 'string' || value.includes('\0') ? [`${variable} is ${JSON.stringify(value)}`] : [],
        )
      },
    },
  ]
}

function furnish(names: readonly string[]): void {
  rmSync(CONF, { recursive: true, force: true })
  rmSync(CACHE, { recursive: true, force: true })
  for (const dir of [`${CONF}/fuzz`, `${CACHE}/results`, BIN]) mkdirSync(dir, { recursive: true })
  try {
    for (const name of names) symlinkSync('/proc/self/exe', `${BIN}/${name}`)
    // One that is not ours.
    linkSync(`${BIN}/bridge`, `${BIN}/.bridge`)
    writeFileSync(`${BIN}/foreign`, '#!/bin/sh\n', { mode: 0o755 })
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause
  }
}

function judged(what: Explanation, given: Given): string[] {
  const text = told(what, true)
  const all = what.plugins.flatMap(({ runs }) => runs.flatMap((run) => strange(run, given)))
  return [
    ...all,
    ...(/(?!\n)\p{Cc}/u.test(text.replace(/\t/g, ' ')) ? [`it is shown as ${JSON.stringify(text.slice(0, 500))}`] : []),
  ]
}

function strange({ namespace, tool, argv, lines }: ExplainedRun, given: Given): string[] {
  if (tool === 'file')
    return lines.flatMap(({ text }) =>
      /^[^\p{Cc}]{1,4200}$/u.test(text) ? [] : [`file ${JSON.stringify(text.slice(0, 300))}`],
    )
  const stdin = lines.map(({ text }) => `${text}\n`).join('')
  return strangeIn(argv, stdin, namespace, given)
}
