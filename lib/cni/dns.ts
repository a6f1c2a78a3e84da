import * as v from 'valibot'
import { field } from '../text/shape.ts'
import type { Dns } from './result.ts'

const texts = v.exactOptional(v.array(field.text))

/** The `dns` key of a configuration (CNI spec "Network configuration format"). */
export const dnsShape = v.exactOptional(
  v.object({ nameservers: texts, domain: v.exactOptional(field.text), search: texts, options: texts }),
)

/**
 * The dns of the configuration when it has any key, even with an empty list. Otherwise the dns of the pool. This is
 * upstream's rule for bridge and ptp.
 */
export function chooseDns(conf: Dns | undefined, given: Dns | undefined): { dns?: Dns } {
  const own = conf && (conf.domain || conf.nameservers || conf.search || conf.options) ? conf : given
  return own ? { dns: own } : {}
}
