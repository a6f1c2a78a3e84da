/** The argv of an ip batch that only changes settings. */
export const BLIND: readonly string[] = ['ip', '-batch', '-']
/** The words after `ip` or `bridge` for a batch that goes on after a line that fails. */
export const RELENTLESS: readonly string[] = ['-force', '-batch', '-']
/** The argv of a batch of tc. */
export const SHAPING: readonly string[] = ['tc', '-batch', '-']
/** The argv of an nft transaction. */
export const NFT: readonly string[] = ['nft', '-f', '-']

/** The argv of a batch that only shows objects. It continues after a line that finds nothing. */
export function asking(tool: readonly string[]): string[] {
  return [...tool, '-d', '-j', '-force', '-batch', '-']
}
