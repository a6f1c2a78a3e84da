// Made by `npm run tables` from the files in this folder: do not edit.
/**
 * The chains of each file of rules. 'rules' counts the rules of a chain. 'uses' is the kernel's use count, by rules and
 * by jumps to the chain.
 */
export const CHAINS = {
  masquerade: {
    postrouting: { rules: 2, uses: 2 },
    outward: { rules: 5, uses: 7 },
  },
  'host-ports': {
    martians: { rules: 2, uses: 2 },
    prerouting: { rules: 1, uses: 1 },
    output: { rules: 1, uses: 1 },
    hostports: { rules: 5, uses: 7 },
    neighbours: { rules: 3, uses: 7 },
    leading: { rules: 8, uses: 10 },
    translated: { rules: 1, uses: 1 },
    inward: { rules: 7, uses: 8 },
    late: { rules: 3, uses: 3 },
  },
  firewall: {
    forward: { rules: 7, uses: 7 },
    podtraffic: { rules: 10, uses: 14 },
    forwarded: { rules: 5, uses: 5 },
    passed: { rules: 1, uses: 5 },
  },
  gateways: {
    outsiders: { rules: 1, uses: 1 },
  },
} as const
