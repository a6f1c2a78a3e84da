import type { Run } from './plugin.ts'
import type { IfName } from './values.ts'

/** A rate in bits per second on a link. */
interface Rate {
  readonly dev: IfName
  readonly rate: number
}

/** What the reference bandwidth has not, or no longer, on an attachment's links: a bucket of each rate, and the way of what the pod sends to its ifb. */
export async function missingForeignShaping(rates: readonly Rate[], redirect: { readonly dev: IfName; readonly to: IfName } | undefined, run: Run): Promise<string[]> {
  const missing: string[] = []
  for (const { dev, rate } of rates) {
    const { stdout } = await run(['tc', '-j', 'qdisc', 'show', 'dev', dev], '')
    const root = (parsed(stdout) as readonly QdiscRow[]).find((one) => one.root)
    const is = root?.kind === 'tbf' ? (root.options?.rate ?? 0) * 8 : undefined
    if (is === undefined) missing.push(`rate of the reference plugin on ${dev} is missing, want ${rate} bit/s`)
    else if (Math.abs(is - rate) > Math.max(8, rate / 100)) missing.push(`rate of the reference plugin on ${dev} is ${is} bit/s, want ${rate}`)
  }
  if (redirect) {
    const { stdout } = await run(['tc', '-j', 'filter', 'show', 'dev', redirect.dev, 'ingress'], '')
    if (!stdout.includes(`"${redirect.to}"`)) missing.push(`redirection of the reference plugin from ${redirect.dev} to ${redirect.to} is missing`)
  }
  return missing
}

interface QdiscRow {
  readonly kind: string
  readonly root?: boolean
  readonly options?: { readonly rate?: number }
}

// tc prints nothing, and an error, of a link that is not there.
function parsed(text: string): unknown[] {
  try {
    return JSON.parse(text)
  } catch {
    return []
  }
}
