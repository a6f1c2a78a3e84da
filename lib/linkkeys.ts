import * as v from 'valibot'
import { dnsShape } from './dns.ts'
import { common, field } from './shape.ts'

/** The keys that every plugin has which makes a link; spread into its shape. */
export const linkKeys = {
  ...common,
  ipam: v.optional(v.looseObject({ type: v.optional(field.text, '') }), {}),
  dns: dnsShape,
}
