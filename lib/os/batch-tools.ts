/** The argv of a batch that only sets. */
export const BLIND: readonly string[] = ['ip', '-batch', '-']
/** The argv of a batch of tc. */
export const SHAPING: readonly string[] = ['tc', '-batch', '-']
/** The argv of an nft transaction. */
export const NFT: readonly string[] = ['nft', '-f', '-']

/** The argv of a batch that only shows, and goes on where there is nothing to show. */
export function asking(tool: readonly string[]): string[] {
  return [...tool, '-d', '-j', '-force', '-batch', '-']
}
