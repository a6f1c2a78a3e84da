/** Whether a text can be a node's name: what a Kubernetes node or a host may be called. It is part of paths and keys, and shown on terminals. */
export function isNodeName(text: string): boolean {
  return /^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,252}$/.test(text)
}
