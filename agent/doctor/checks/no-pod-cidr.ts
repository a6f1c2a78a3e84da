import { defineCheck } from '../check.ts'

const MANIFEST = '/etc/kubernetes/manifests/kube-controller-manager.yaml'

/** Kubernetes gave this Node no pod CIDR, because the controller manager gives none. */
export const check = defineCheck({
  code: 'DR29',
  title: 'Node has no pod CIDR',
  severity: 'error',
  reads: ['status'],
  detect({ status }) {
    const sentence = [...(status?.reasons ?? []), ...(status?.degraded ?? [])].find((text) =>
      /it has no pod CIDR/.test(text),
    )
    if (!status || sentence === undefined) return []
    const { v4, v6 } = status.network
    const networks = [v4, v6].filter((one) => one !== undefined).join(',')
    const flags = ['allocate-node-cidrs=true', `cluster-cidr=${networks || '10.244.0.0/16'}`]
    return [
      {
        what: `The Node ${status.node} has no spec.podCIDR`,
        effect: 'this node has no subnet, and its pods do not start; run the command on the control plane',
        commands: flags.map((one) => `sed -i '/- kube-controller-manager$/a\\    - --${one}' ${MANIFEST}`),
      },
    ]
  },
})
