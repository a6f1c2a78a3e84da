import { defineCheck } from '../check.ts'

/** The API server does not give the agent all objects that it needs: it refuses a kind, or does not serve it. */
export const check = defineCheck({
  code: 'DR54',
  title: 'objects of the cluster are not known',
  severity: 'error',
  // A server that is away gives nothing at all.
  dependsOn: ['DR46'],
  reads: ['status'],
  detect({ status }) {
    return (status?.unknownObjects ?? []).map((what) => ({
      what,
      effect: 'what changes among these objects does not come to this node, and a node that starts serves no pods',
      commands: [commandFor(what)],
    }))
  },
})

function commandFor(what: string): string {
  if (what.includes(': 403 ')) return 'kubectl edit clusterrole plumb'
  const [, definition] = /\b([a-z]+\.policy\.networking\.k8s\.io)\b/.exec(what) ?? []
  if (definition !== undefined) return `kubectl get crd ${definition} -o jsonpath='{.spec.versions}'`
  return 'kubectl api-resources'
}
