/** The command of plumb that answers a question about all pairs of pods. No help names it. */
export const PAIR_COMMAND = '__policy-pairs'
