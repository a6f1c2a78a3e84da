// Keeps the fast path of the namespace that it runs in. Reads one JSON object a line: the ways to keep, or how often to
// renew at once. Answers each with a line.
import { createInterface } from 'node:readline'
import { FastPath, whyWithout } from '../../agent/fast-path/program.ts'
import type { Ways } from '../../agent/fast-path/ways.ts'
import { run } from '../../agent/kernel/run.ts'
import { linksNow } from '../../lib/os/links.ts'
import { parseCidr } from '../../lib/text/ip.ts'

const path = new FastPath(['10.244.0.0/16', 'fd00:244::/48'].map(parseCidr), run)
process.stdout.write(`${JSON.stringify({ why: (await whyWithout(run)) ?? null })}\n`)
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line) as { ways: Ways } | { renew: number }
  let answer: object
  try {
    // The agent's listener does it after each change of another program.
    path.invalidate()
    if ('renew' in asked) await Promise.all(Array.from({ length: asked.renew }, () => path.renew()))
    const existing = new Set<string>(linksNow().map(({ name }) => name))
    const repaired = 'ways' in asked ? await path.keep(asked.ways, existing) : []
    answer = { repaired, size: path.size, renewals: path.renewals }
  } catch (cause) {
    answer = { error: (cause as Error).message }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
