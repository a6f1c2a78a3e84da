/** Where the draft of a file lies that one writer at a time writes: beside it, by a name that begins with a dot, so that no reader of the folder takes it for one of its own. Whoever removes the file for good removes this too, for a kill leaves it. */
export function draftOf(path: string): string {
  return path.replace(/[^/]*$/, '.$&.draft')
}
