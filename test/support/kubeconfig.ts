/** A kubeconfig as text: `user` is what stands below `user:`. */
export function kubeconfigOf(server: string, caFile: string, user: string): string {
  return `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "${server}", certificate-authority: "${caFile}"}}]
users:
  - name: test
    user:
      ${user.replace(/\n/g, '\n      ')}
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`
}
