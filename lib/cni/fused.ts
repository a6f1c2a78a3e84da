import * as v from 'valibot'
import { shown, ValueError } from '../text/errors.ts'
import { FUSED } from './fused-plugins.ts'
import type { Fused, Within } from './plugin.ts'

/** The value of a fused plugin's key. */
type Settings = boolean | object

const PLUGINS: readonly (Fused & { readonly type: string })[] = FUSED

/**
 * The keys of an interface plugin for chained plugins that work within its calls. A key takes the settings that the
 * chained plugin would have in a list, or `true`. Spread it into the plugin's shape.
 */
export const withinKeys = Object.fromEntries(PLUGINS.map(({ key, isList }) => [key, settings(isList)] as const)) as {
  readonly [One in (typeof FUSED)[number] as One['key']]: ReturnType<typeof settings>
}

interface Conf {
  readonly runtimeConfig?: Readonly<Record<string, unknown>>
  readonly args?: unknown
  readonly [key: string]: unknown
}

/**
 * The chained plugins that a configuration asks for, each with its configuration, in the usual order of lists. A plugin
 * is asked for by its own key, or by a capability from the runtime. Pure.
 */
export function within({ runtimeConfig = {}, args, ...conf }: Conf): Within[] {
  const given = (name: string) =>
    Object.entries(runtimeConfig).find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1]
  return PLUGINS.flatMap(({ type, key, capability, asks, isList, args: takesArgs }) => {
    const own = conf[key] as Settings | undefined
    const asked = capability === undefined ? undefined : given(capability)
    const value = asked ?? (isList && Array.isArray(own) ? own : undefined)
    const isAsked = asks && (isList ? Array.isArray(value) && value.length > 0 : value !== undefined)
    if (!isOn(own) && !isAsked) return []
    const supplied = capability === undefined || value === undefined ? {} : { [capability]: value }
    return [of(type, key, own, supplied, takesArgs ? args : undefined)]
  })
}

function of(type: string, key: string, settings: Settings | undefined, runtimeConfig: object, args?: unknown): Within {
  const own = typeof settings === 'object' && !Array.isArray(settings) ? settings : {}
  return { type, key, conf: { ...own, ...(args === undefined ? {} : { args }), runtimeConfig } }
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
        const isObject = typeof value === 'object' && value !== null && (isList || !Array.isArray(value))
        if (typeof value === 'boolean' || isObject) return value
        const wish = `want ${isList ? 'a list of mappings, ' : ''}an object of settings, true or false`
        addIssue({ message: new ValueError(`${shown(value)}: ${wish}`).message })
        return NEVER
      }),
    ),
  )
}
