import assert from 'node:assert/strict'
import { FORMER_POLICY_KINDS, type KindName } from '../../../agent/cluster/kinds.ts'
import { openObjects } from '../../../agent/cluster/source.ts'
import { until } from '../harness.ts'
import type { Asking, Raw, Rule } from '../kube-server.ts'

/** A cluster whose administrator defines kinds. */
export interface Definer {
  readonly kubeconfig: string
  readonly ask: Asking
  /** Gives the user of `kubeconfig` this role, and no other. */
  grant(rules: readonly Rule[]): Promise<void>
}

const GROUP = 'policy.networking.k8s.io'
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
const KINDS: readonly KindName[] = ['clusterPolicies', ...FORMER_POLICY_KINDS]
const PLURALS = ['clusternetworkpolicies', 'adminnetworkpolicies', 'baselineadminnetworkpolicies'] as const
const LISTS: Rule = { apiGroups: [GROUP], resources: PLURALS, verbs: ['get', 'list', 'watch'] }
const DEFINED: Rule = {
  apiGroups: ['apiextensions.k8s.io'],
  resources: ['customresourcedefinitions'],
  verbs: ['get'],
}
const NAMES = {
  clusternetworkpolicies: 'ClusterNetworkPolicy',
  adminnetworkpolicies: 'AdminNetworkPolicy',
  baselineadminnetworkpolicies: 'BaselineAdminNetworkPolicy',
} as const

/** Versions and whether they are served. The last one is stored. */
type Versions = Readonly<Record<string, boolean>>

function versionsOf(versions: Versions) {
  const names = Object.keys(versions)
  return names.map((name) => ({
    name,
    served: versions[name],
    storage: name === names.at(-1),
    schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
  }))
}

/** Tests that a kind of a CustomResourceDefinition is followed whatever the API does with its versions. */
export function testServedVersions(what: string, cluster: (test: Mocha.Context) => Promise<Definer>): void {
  const WAIT = 60_000

  async function scene(test: Mocha.Context, work: (made: Scene) => Promise<void>): Promise<void> {
    test.timeout(240_000)
    const at = await cluster(test)
    const end = new AbortController()
    await at.grant([LISTS, DEFINED])
    const made = sceneOf(at, end.signal)
    try {
      await work(made)
    } finally {
      end.abort()
      for (const plural of PLURALS) await at.ask('DELETE', `${DEFINITIONS}/${plural}.${GROUP}`).catch(() => {})
      await until(async () => {
        const all = await Promise.all(PLURALS.map((one) => at.ask('GET', `${DEFINITIONS}/${one}.${GROUP}`)))
        return all.every((one) => one === undefined)
      }, WAIT)
    }
  }

  it(`${what}: ClusterNetworkPolicy is read in the newest served version, and a change of the served version is followed without a gap`, async function () {
    await scene(this, async ({ define, serve, deny, follow }) => {
      await define({ v1alpha2: true })
      await deny('one', 'v1alpha2')
      const source = follow()
      const { clusterPolicies } = source.objects
      await until(() => clusterPolicies.has('one'), WAIT)
      const gaps: string[] = []
      source.onChange(() => {
        if (!clusterPolicies.has('one')) gaps.push('one')
      })
      await serve({ v1alpha2: true, v1beta1: true })
      await serve({ v1alpha2: false, v1beta1: true })
      await deny('two', 'v1beta1')
      await until(() => clusterPolicies.has('two'), WAIT)
      assert.deepEqual([gaps, source.trouble(KINDS), clusterPolicies.size], [[], undefined, 2])
      assert.deepEqual(clusterPolicies.get('two'), { ...clusterPolicies.get('one'), name: 'two' })
      // An agent that starts now, and then one in a cluster that went back.
      const other = follow()
      await until(() => other.objects.clusterPolicies.size === 2, WAIT)
      await serve({ v1beta1: false, v1alpha2: true })
      await deny('three', 'v1alpha2')
      await until(() => clusterPolicies.has('three') && other.objects.clusterPolicies.has('three'), WAIT)
      assert.deepEqual([gaps, other.trouble(KINDS)], [[], undefined])
    })
  })

  it(`${what}: when no known version is served any more, the last policies stay and the versions are named; only a deleted definition ends them`, async function () {
    await scene(this, async ({ at, define, serve, deny, follow }) => {
      await define({ v1alpha2: true })
      await deny('one', 'v1alpha2')
      const source = follow()
      const { clusterPolicies } = source.objects
      await until(() => clusterPolicies.has('one'), WAIT)
      const told = (pattern: RegExp) => until(() => pattern.test(source.trouble(KINDS) ?? ''), WAIT)
      await serve({ v1alpha2: false, v1: true })
      await told(/clusternetworkpolicies\.policy\.networking\.k8s\.io only in version v1: want v1beta1 or v1alpha2$/)
      assert.equal(clusterPolicies.size, 1)
      // An agent that starts now cannot know what is denied.
      const other = follow()
      await until(() => /only in version v1:/.test(other.trouble(KINDS) ?? ''), WAIT)
      assert.equal(other.isComplete(['clusterPolicies']), false)
      await serve({ v1alpha2: false, v1: false })
      await told(
        /in no version; its definition has v1alpha2 \(not served\), v1 \(not served\): want v1beta1 or v1alpha2$/,
      )
      assert.equal(clusterPolicies.size, 1)
      // The group is there for another kind.
      await define({ v1alpha1: true }, 'adminnetworkpolicies')
      await until(() => /in no version/.test(source.trouble(['clusterPolicies']) ?? ''), WAIT)
      // The role of an earlier release may not read definitions: whether the kind is gone is not known.
      await at.grant([LISTS])
      await told(/^Cannot find out whether clusternetworkpolicies\.policy\.networking\.k8s\.io.*is deleted: .* 403 /)
      assert.equal(clusterPolicies.size, 1)
      await at.grant([LISTS, DEFINED])
      await serve({ v1alpha2: true, v1: false })
      await until(() => other.isComplete(['clusterPolicies']) && other.objects.clusterPolicies.size === 1, WAIT)
      await until(() => source.trouble(KINDS) === undefined, WAIT)
      await at.ask('DELETE', `${DEFINITIONS}/clusternetworkpolicies.${GROUP}`)
      await until(() => clusterPolicies.size === 0 && other.objects.clusterPolicies.size === 0, WAIT)
      assert.equal(source.trouble(KINDS), undefined)
    })
  })

  it(`${what}: a cluster without the kind has no policy of it and no trouble, and one that gets the kind is followed`, async function () {
    await scene(this, async ({ define, deny, follow }) => {
      const source = follow()
      await until(() => source.isComplete(KINDS), WAIT)
      assert.equal(source.trouble(KINDS), undefined)
      await define({ v1alpha2: true, v1beta1: true })
      await deny('one', 'v1beta1')
      await until(() => source.objects.clusterPolicies.has('one'), WAIT)
    })
  })

  it(`${what}: objects of AdminNetworkPolicy and BaselineAdminNetworkPolicy are named as not enforced`, async function () {
    await scene(this, async ({ at, define, follow }) => {
      for (const plural of ['adminnetworkpolicies', 'baselineadminnetworkpolicies'] as const) {
        await define({ v1alpha1: true }, plural)
        await at.ask('POST', `/apis/${GROUP}/v1alpha1/${plural}`, {
          apiVersion: `${GROUP}/v1alpha1`,
          kind: NAMES[plural],
          metadata: { name: 'default' },
          spec: {},
        })
      }
      const source = follow()
      await until(() => source.refused(KINDS).length === 2, WAIT)
      assert.deepEqual(
        source.refused(KINDS),
        ['AdminNetworkPolicy', 'BaselineAdminNetworkPolicy'].map(
          (kind) => `${kind} default: plumb does not enforce this kind; want a ClusterNetworkPolicy`,
        ),
      )
    })
  })
}

type Scene = ReturnType<typeof sceneOf>

function sceneOf(at: Definer, signal: AbortSignal) {
  const pathOf = (plural: string) => `${DEFINITIONS}/${plural}.${GROUP}`
  return {
    at,
    /** Makes a CustomResourceDefinition, and waits until its versions are served. */
    async define(versions: Versions, plural: (typeof PLURALS)[number] = 'clusternetworkpolicies'): Promise<void> {
      await at.ask('POST', DEFINITIONS, {
        apiVersion: 'apiextensions.k8s.io/v1',
        kind: 'CustomResourceDefinition',
        metadata: {
          name: `${plural}.${GROUP}`,
          annotations: { 'api-approved.kubernetes.io': 'unapproved, for a test' },
        },
        spec: {
          group: GROUP,
          scope: 'Cluster',
          names: {
            plural,
            singular: NAMES[plural].toLowerCase(),
            kind: NAMES[plural],
            listKind: `${NAMES[plural]}List`,
          },
          versions: versionsOf(versions),
        },
      })
      await served(at, plural, versions)
    },
    /** Changes which versions the API serves. */
    async serve(versions: Versions, plural: (typeof PLURALS)[number] = 'clusternetworkpolicies'): Promise<void> {
      const change = { spec: { versions: versionsOf(versions) } }
      await at.ask('PATCH', pathOf(plural), change, 'application/merge-patch+json')
      await served(at, plural, versions)
    },
    /** Makes a policy that denies all ingress. */
    async deny(name: string, version: string): Promise<void> {
      await at.ask('POST', `/apis/${GROUP}/${version}/clusternetworkpolicies`, {
        apiVersion: `${GROUP}/${version}`,
        kind: 'ClusterNetworkPolicy',
        metadata: { name },
        spec: {
          tier: 'Admin',
          priority: 1,
          subject: { namespaces: {} },
          ingress: [{ action: 'Deny', from: [{ namespaces: {} }] }],
        },
      })
    },
    /** The objects as an agent follows them. */
    follow() {
      const source = openObjects({ from: 'api', kubeconfig: at.kubeconfig }, KINDS, 'test')
      const listeners: (() => void)[] = []
      source.changes(KINDS, () => {
        for (const one of listeners) one()
      })
      void source.run(signal)
      return {
        objects: source.objects,
        trouble: (kinds: readonly KindName[]) => source.trouble(kinds),
        refused: (kinds: readonly KindName[]) => source.refused(kinds),
        isComplete: (kinds: readonly KindName[]) => source.isComplete(kinds),
        onChange: (listener: () => void) => void listeners.push(listener),
      }
    },
  }
}

// Discovery follows a definition a moment later.
async function served(at: Definer, plural: string, versions: Versions): Promise<void> {
  const has = async (version: string) => {
    const answer = (await at.ask('GET', `/apis/${GROUP}/${version}`)) as { resources?: { name: string }[] } & Raw
    const isListed = answer?.resources?.some(({ name }) => name === plural) === true
    const list = await at.ask('GET', `/apis/${GROUP}/${version}/${plural}`)
    return isListed && list !== undefined
  }
  await until(async () => {
    const all = await Promise.all(Object.entries(versions).map(async ([name, want]) => (await has(name)) === want))
    return all.every(Boolean)
  }, 60_000)
}
