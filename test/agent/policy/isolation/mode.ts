// The two kinds of isolation histories.

/**
 * Whether connections take the fast path in these histories. It wants a kernel with flowtables. The pods have addresses
 * of the node's subnets, and flows are compared with the oracle by the packets that were sent after a transaction.
 */
export const IS_OFFLOADED = process.argv[5] === 'offloaded'
/** The program of the agent, when it is not that of dist/. */
export const AGENT = process.argv[6]
