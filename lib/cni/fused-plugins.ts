// Made by `npm run tables` from the files in this folder: do not edit.
/** The chained plugins that work within the calls of an interface plugin, in their order. */
export const FUSED = [
  { type: 'portmap', key: 'portMappings', place: 1, capability: 'portMappings', asks: true, isList: true },
  { type: 'firewall', key: 'firewall', place: 2 },
  { type: 'bandwidth', key: 'bandwidth', place: 3, capability: 'bandwidth', asks: true },
  { type: 'tuning', key: 'tuning', place: 4, capability: 'mac', args: true },
  { type: 'policy', key: 'policy', place: 5 },
] as const
