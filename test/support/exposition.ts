/** One family of Prometheus' text format, read strictly. */
export interface Family {
  readonly type: string
  readonly samples: readonly {
    readonly name: string
    readonly labels: Readonly<Record<string, string>>
    readonly value: number
  }[]
}

const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*'
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/y
const VALUE = /^(?:[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|[-+]?Inf|NaN)$/i

/**
 * Reads text exposition format 0.0.4 as its description has it, and as promlint would. HELP and TYPE come before the
 * samples, families are in one piece, and no sample comes twice. Counters end in _total, and buckets rise to +Inf.
 * Throws Error with the line.
 */
export function exposition(text: string): Map<string, Family> {
  const families = new Map<string, Family & { samples: Family['samples'][number][] }>()
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  let current = ''
  let helped = ''
  for (const line of text.slice(0, -1).split('\n')) {
    const help = new RegExp(`^# HELP (${NAME}) ((?:[^\\\\]|\\\\[\\\\n])+)$`).exec(line)
    const type = new RegExp(`^# TYPE (${NAME}) (gauge|counter|histogram)$`).exec(line)
    if (help) helped = help[1] as string
    else if (type) {
      current = type[1] as string
      if (families.has(current) || helped !== current) throw new Error(`a second family, or one without HELP: ${line}`)
      families.set(current, { type: type[2] as string, samples: [] })
    } else families.get(current)?.samples.push(sample(line, current, families.get(current)?.type ?? '')) ?? refuse(line)
  }
  for (const [name, family] of families) judge(name, family)
  return families
}

/** The value of one sample; throws when there is none. */
export function value(
  families: Map<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  const found = [...families.values()]
    .flatMap(({ samples }) => samples)
    .filter((one) => one.name === name && Object.entries(labels).every(([key, wanted]) => one.labels[key] === wanted))
  if (found.length !== 1 || !found[0]) throw new Error(`${found.length} samples of ${name} ${JSON.stringify(labels)}`)
  return found[0].value
}

function sample(line: string, family: string, type: string): Family['samples'][number] {
  const [, name = '', , inner = '', number = ''] = new RegExp(`^(${NAME})(\\{(.*)\\})? (\\S+)$`).exec(line) ?? []
  const own = type === 'histogram' ? [`${family}_bucket`, `${family}_sum`, `${family}_count`] : [family]
  if (!own.includes(name) || !VALUE.test(number)) refuse(line)
  const labels: Record<string, string> = {}
  LABEL.lastIndex = 0
  for (let at = 0; at < inner.length; at = LABEL.lastIndex) {
    const [, key = '', text = ''] = LABEL.exec(inner) ?? refuse(line)
    if (key in labels) refuse(line)
    labels[key] = text.replace(/\\(.)/g, (_, escaped) => (escaped === 'n' ? '\n' : escaped))
  }
  return { name, labels, value: Number(number.replace(/inf/i, 'Infinity')) }
}

function judge(name: string, { type, samples }: Family): void {
  const keys = samples.map((one) => `${one.name} ${JSON.stringify(Object.entries(one.labels).sort())}`)
  if (samples.length === 0) throw new Error(`${name} has no samples`)
  if (new Set(keys).size !== keys.length) throw new Error(`${name} has a sample twice`)
  if ((type === 'counter') !== name.endsWith('_total'))
    throw new Error(`${name} is a ${type}: counters end in _total, and nothing else does`)
  if (type !== 'histogram') return
  // Each set of labels is a histogram of its own.
  const series = Map.groupBy(samples, ({ labels: { le: _, ...rest } }) => JSON.stringify(Object.entries(rest).sort()))
  for (const one of series.values()) judgeHistogram(name, one)
}

function judgeHistogram(name: string, samples: Family['samples']): void {
  const buckets = samples
    .filter((one) => one.name === `${name}_bucket`)
    .map(({ labels, value: count }) => ({ le: Number(labels['le']?.replace('+Inf', 'Infinity')), count }))
  const count = samples.find((one) => one.name === `${name}_count`)?.value
  if (
    buckets.some(
      ({ le, count: here }, i) =>
        Number.isNaN(le) || (i > 0 && (le <= (buckets[i - 1]?.le ?? 0) || here < (buckets[i - 1]?.count ?? 0))),
    )
  )
    throw new Error(`${name} has buckets that do not rise`)
  if (buckets.at(-1)?.le !== Number.POSITIVE_INFINITY || buckets.at(-1)?.count !== count)
    throw new Error(`${name} does not end with everything in +Inf`)
  if (!samples.some((one) => one.name === `${name}_sum`)) throw new Error(`${name} has no sum`)
}

function refuse(line: string): never {
  throw new Error(`no line of the format: ${line}`)
}
