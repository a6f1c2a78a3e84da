// In which version the API serves a kind of a CustomResourceDefinition. A kind that no known version serves is not the
// same as a kind that the cluster does not have.
import { UnavailableError } from '../scheduler/follow.ts'
import { type Api, ApiError } from './api.ts'

/** A kind that a CustomResourceDefinition makes. */
export interface Custom {
  /** `policy.networking.k8s.io`. */
  readonly group: string
  /** `clusternetworkpolicies`. */
  readonly plural: string
  /** The versions that plumb reads, the newest first. Their objects have the same shape. */
  readonly versions: readonly string[]
}

/** The API does not serve a kind in a version that plumb reads. */
export class UnservedError extends UnavailableError {
  override name = 'UnservedError'
  /** The cluster does not have the kind, so that there is no object of it. False: it has, or may have. */
  readonly isAbsent: boolean

  constructor(message: string, isAbsent: boolean) {
    super(message)
    this.isAbsent = isAbsent
  }
}

const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

/** The path of a kind's list in a version. */
export function listPath({ group, plural }: Custom, version: string): string {
  return `/apis/${group}/${version}/${plural}`
}

/**
 * Finds the list of a kind by the discovery of the API: the newest version that plumb reads. With `wasServed` an answer
 * that does not tell whether the kind is gone counts as a kind that is there. Throws UnavailableError: UnservedError when
 * the API serves the kind in no version that plumb reads.
 */
export async function servedPath(api: Api, custom: Custom, wasServed: boolean, signal: AbortSignal): Promise<string> {
  const { group, plural, versions } = custom
  const given = versionsOf(await api.get(`/apis/${group}`, signal))
  const others: string[] = []
  for (const version of [...versions.filter((one) => given.includes(one)), ...given]) {
    if (others.includes(version) || !(await serves(api, custom, version, signal))) continue
    if (versions.includes(version)) return listPath(custom, version)
    others.push(version)
  }
  const name = `${plural}.${group}`
  const want = `want ${versions.join(' or ')}`
  if (others.length > 0)
    throw new UnservedError(`The Kubernetes API serves ${name} only in version ${others.join(', ')}: ${want}`, false)
  const absent = `The cluster has no ${name}`
  try {
    const definition = await api.get(`${DEFINITIONS}/${name}`, signal)
    if (definition === undefined) throw new UnservedError(absent, true)
    const defined = definedOf(definition)
    const has = defined.length > 0 ? `has ${defined.join(', ')}` : 'has no version'
    throw new UnservedError(`The Kubernetes API serves ${name} in no version; its definition ${has}: ${want}`, false)
  } catch (cause) {
    if (!(cause instanceof ApiError && cause.status === 403)) throw cause
    if (!wasServed) throw new UnservedError(absent, true)
    const why = `Cannot find out whether ${name}, which the Kubernetes API no longer serves, is deleted`
    throw new UnservedError(`${why}: ${cause.message}`, false)
  }
}

async function serves(api: Api, { group, plural }: Custom, version: string, signal: AbortSignal): Promise<boolean> {
  const answer = (await api.get(`/apis/${group}/${version}`, signal)) as { resources?: unknown } | undefined
  return namesOf(answer?.resources, 'name').includes(plural)
}

// The versions of a group (meta/v1 APIGroup). None when the API has no such group.
function versionsOf(group: unknown): string[] {
  return namesOf((group as { versions?: unknown } | undefined)?.versions, 'version')
}

// `v1alpha2 (not served)`, of a CustomResourceDefinition.
function definedOf(definition: unknown): string[] {
  const { versions } = (definition as { spec?: { versions?: unknown } }).spec ?? {}
  return (Array.isArray(versions) ? versions : []).map((one: { name?: unknown; served?: unknown }) =>
    one.served === true ? String(one.name) : `${String(one.name)} (not served)`,
  )
}

function namesOf(list: unknown, key: string): string[] {
  return (Array.isArray(list) ? list : []).flatMap((one: Record<string, unknown> | null) => {
    const name = one?.[key]
    return typeof name === 'string' ? [name] : []
  })
}
