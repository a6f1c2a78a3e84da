import { ethtool } from './sockets.ts'

// linux/ethtool.h: the commands, and the number of the list of features among the lists of names.
const [ETHTOOL_GSTRINGS, ETHTOOL_GSSET_INFO, ETHTOOL_GFEATURES] = [0x1b, 0x37, 0x3a]
const ETH_SS_FEATURES = 4
// ETH_GSTRING_LEN, and the bytes before the names in struct ethtool_gstrings.
const [NAME_BYTES, NAMES_AT] = [32, 12]
// struct ethtool_get_features_block has four words: available, requested, active, never_changed.
const [BLOCK_WORDS, ACTIVE, WORD_BITS] = [4, 2, 32]

/**
 * Whether a feature of a link of this thread's namespace is on, such as `tx-udp_tnl-csum-segmentation` (`ethtool -k`).
 * ethtool need not be installed. False also when the kernel knows no such feature. Undefined when it could not be found
 * out: there is no such link, or the kernel refuses to answer.
 */
export function linkFeature(name: string, feature: string): boolean | undefined {
  const names = featureNames(name)
  if (!names) return undefined
  const at = names.indexOf(feature)
  if (at < 0) return false
  const words = Math.ceil(names.length / WORD_BITS)
  // struct ethtool_gfeatures: the command, the number of blocks, the blocks.
  const features = new Uint32Array(2 + words * BLOCK_WORDS)
  features.set([ETHTOOL_GFEATURES, words])
  if (!ethtool(name, features)) return undefined
  const active = features[2 + Math.floor(at / WORD_BITS) * BLOCK_WORDS + ACTIVE] as number
  return ((active >>> (at % WORD_BITS)) & 1) === 1
}

/** The names of the kernel's features, in the order of their bits. Undefined when the kernel refuses to answer. */
export function featureNames(name: string): readonly string[] | undefined {
  // struct ethtool_sset_info: the command, a reserved word, a mask of 64 bits, and a length for each bit.
  const info = Uint32Array.of(ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0)
  if (!ethtool(name, info)) return undefined
  const count = info[4] as number
  const strings = new Uint8Array(NAMES_AT + count * NAME_BYTES)
  new Uint32Array(strings.buffer, 0, 3).set([ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count])
  if (!ethtool(name, strings)) return undefined
  return Array.from({ length: count }, (_, i) => {
    const at = NAMES_AT + i * NAME_BYTES
    const text = new TextDecoder().decode(strings.subarray(at, at + NAME_BYTES))
    return text.slice(0, text.indexOf('\0'))
  })
}
