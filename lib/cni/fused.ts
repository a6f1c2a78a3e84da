import * as v from 'valibot'
import { shown, ValueError } from '../text/errors.ts'
import type { Within } from './plugin.ts'

/** The keys of an interface plugin that has chained plugins work within its own calls: each takes the settings of the plugin that would follow it in a list, or `true`. Spread into its shape. */
export const withinKeys = {
  /** Settings of `portmap`, or a list of mappings for when the runtime gives none. */
  portMappings: settings(true),
  bandwidth: settings(),
  firewall: settings(),
  tuning: settings(),
}

interface Conf {
  readonly portMappings?: Settings | undefined
  readonly bandwidth?: Settings | undefined
  readonly firewall?: Settings | undefined
  readonly tuning?: Settings | undefined
  readonly runtimeConfig?: Readonly<Record<string, unknown>>
  readonly args?: unknown
}
type Settings = boolean | object

/** The chained plugins of a configuration, with what each would be configured with, in the order of the lists in use: asked for by a key of its own, or by what the runtime gives it as a capability. Pure. */
export function within({ portMappings, bandwidth, firewall, tuning, runtimeConfig = {}, args }: Conf): Within[] {
  const given = (name: string) => Object.entries(runtimeConfig).find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1]
  const mappings = given('portMappings') ?? (Array.isArray(portMappings) ? portMappings : undefined)
  const rate = given('bandwidth')
  const mac = given('mac')
  return [
    ...(isOn(portMappings) || (Array.isArray(mappings) && mappings.length > 0) ? [of('portmap', 'portMappings', portMappings, mappings === undefined ? {} : { portMappings: mappings })] : []),
    ...(isOn(firewall) ? [of('firewall', 'firewall', firewall, {})] : []),
    ...(isOn(bandwidth) || rate !== undefined ? [of('bandwidth', 'bandwidth', bandwidth, rate === undefined ? {} : { bandwidth: rate })] : []),
    ...(isOn(tuning) ? [of('tuning', 'tuning', tuning, mac === undefined ? {} : { mac }, args)] : []),
  ]
}

function of(type: string, key: string, settings: Settings | undefined, runtimeConfig: object, args?: unknown): Within {
  return { type, key, conf: { ...(typeof settings === 'object' && !Array.isArray(settings) ? settings : {}), ...(args === undefined ? {} : { args }), runtimeConfig } }
}

function isOn(settings: Settings | undefined): boolean {
  return settings !== undefined && settings !== false
}

function settings(isList = false) {
  return v.exactOptional(
    v.pipe(
      v.unknown(),
      v.rawTransform<unknown, Settings>(({ dataset, addIssue, NEVER }) => {
        const { value } = dataset
        if (typeof value === 'boolean' || (typeof value === 'object' && value !== null && (isList || !Array.isArray(value)))) return value
        addIssue({ message: new ValueError(`${shown(value)}: want ${isList ? 'a list of mappings, ' : ''}an object of settings, true or false`).message })
        return NEVER
      }),
    ),
  )
}
