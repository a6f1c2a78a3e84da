import * as v from 'valibot'
import { dnsShape } from '../cni/dns.ts'
import { common, field } from '../text/shape.ts'

/** The keys of every plugin that makes a link. A plugin spreads them into its shape. */
export const linkKeys = {
  ...common,
  ipam: v.optional(v.looseObject({ type: v.optional(field.text, '') }), {}),
  dns: dnsShape,
}
