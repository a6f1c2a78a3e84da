/**
 * Whether a text is a valid node name: the characters that the name of a Kubernetes node or of a host may have. The
 * name is part of paths and keys, and terminals show it.
 */
export function isNodeName(text: string): boolean {
  return /^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,252}$/.test(text)
}
