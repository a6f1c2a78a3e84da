import * as v from 'valibot'
import { dnsShape } from '../cni/dns.ts'
import { common, field } from '../text/shape.ts'

/** The keys that every plugin has which makes a link; spread into its shape. */
export const linkKeys = {
  ...common,
  ipam: v.optional(v.looseObject({ type: v.optional(field.text, '') }), {}),
  dns: dnsShape,
}
