import * as v from 'valibot'
import { objectOf } from '../text/entries.ts'
import { shown, ValueError } from '../text/errors.ts'
import { FUSED } from './fused-plugins.ts'
import type { Fused, Within } from './plugin.ts'

/** What the key of a fused plugin holds. */
type Settings = boolean | object

const PLUGINS: readonly (Fused & { readonly type: string })[] = FUSED

/** The keys of an interface plugin that has chained plugins work within its own calls. Each takes the settings of the plugin that would follow it in a list, or `true`. Spread into its shape. */
export const withinKeys = objectOf(PLUGINS.map(({ key, isList }) => [key, settings(isList)] as const)) as { readonly [One in (typeof FUSED)[number] as One['key']]: ReturnType<typeof settings> }

interface Conf {
  readonly runtimeConfig?: Readonly<Record<string, unknown>>
  readonly args?: unknown
  readonly [key: string]: unknown
}

/** The chained plugins of a configuration, with what each would be configured with, in the order of the lists in use: asked for by a key of its own, or by what the runtime gives it as a capability. Pure. */
export function within({ runtimeConfig = {}, args, ...conf }: Conf): Within[] {
  const given = (name: string) => Object.entries(runtimeConfig).find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1]
  return PLUGINS.flatMap(({ type, key, capability, asks, isList, args: takesArgs }) => {
    const own = conf[key] as Settings | undefined
    const value = (capability === undefined ? undefined : given(capability)) ?? (isList && Array.isArray(own) ? own : undefined)
    const isAsked = asks && (isList ? Array.isArray(value) && value.length > 0 : value !== undefined)
    if (!isOn(own) && !isAsked) return []
    return [of(type, key, own, capability === undefined || value === undefined ? {} : { [capability]: value }, takesArgs ? args : undefined)]
  })
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
