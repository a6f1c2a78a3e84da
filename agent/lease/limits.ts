/**
 * Longest value of a store that is parsed, in characters. A valid value of flannel has a few hundred. Some texts take
 * twenty times their size when parsed.
 */
export const MOST = 65_536
