import type { Run } from '../os/run.ts'
import { show } from '../os/show.ts'
import type { IfName } from '../text/values.ts'

/** A rate in bits per second on a link. */
interface Rate {
  readonly dev: IfName
  readonly rate: number
}

/**
 * The missing parts of the reference bandwidth on an attachment's links: a token bucket per rate, and the redirection
 * of the pod's packets to its ifb. Starts one process.
 */
export async function missingForeignShaping(
  rates: readonly Rate[],
  redirect: { readonly dev: IfName; readonly to: IfName } | undefined,
  run: Run,
): Promise<string[]> {
  const asks = [
    ...rates.map(({ dev }) => `qdisc show dev ${dev}`),
    ...(redirect ? [`filter show dev ${redirect.dev} ingress`] : []),
  ]
  if (asks.length === 0) return []
  const found = await show(['tc', '-d'], asks, run)
  const missing = rates.flatMap(({ dev, rate }, i) => {
    const root = ((found[i] ?? []) as readonly QdiscRow[]).find((one) => one.root)
    if (root?.kind !== 'tbf') return [`rate of the reference plugin on ${dev} is missing, want ${rate} bit/s`]
    const is = (root.options?.rate ?? 0) * 8
    return Math.abs(is - rate) > Math.max(8, rate / 100)
      ? [`rate of the reference plugin on ${dev} is ${is} bit/s, want ${rate}`]
      : []
  })
  const filters = (redirect ? (found.at(-1) ?? []) : []) as readonly FilterRow[]
  const isLed = filters.some(({ options }) =>
    options?.actions?.some(({ kind, to_dev }) => kind === 'mirred' && to_dev === redirect?.to),
  )
  return redirect && !isLed
    ? [...missing, `redirection of the reference plugin from ${redirect.dev} to ${redirect.to} is missing`]
    : missing
}

interface QdiscRow {
  readonly kind: string
  readonly root?: boolean
  readonly options?: { readonly rate?: number }
}
interface FilterRow {
  readonly options?: { readonly actions?: readonly { readonly kind?: string; readonly to_dev?: string }[] }
}
