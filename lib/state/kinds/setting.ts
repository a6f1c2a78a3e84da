import type { IfName, Mac } from '../../text/values.ts'
import type { Handler } from '../resource.ts'
import type { Setting, Settings } from '../settings.ts'
import type { LinkRow } from './link.ts'

/** Settings of a link that another made: one line sets them all, and one puts back what was otherwise. */
export const setting: Handler<Setting> = {
  tool: 'ip',
  key: ({ ns, dev }) => `setting ${ns} ${dev}`,
  put: ({ dev, ...want }) => [{ text: `link set dev ${dev}${words(want)}` }],
  // Each by itself, in the order of the reference, and whatever the kernel says: nothing must keep a DEL from going on.
  drop: ({ dev, before = {} }) => ORDER.flatMap((key) => (before[key] === undefined ? [] : [{ text: `link set dev ${dev}${words({ [key]: before[key] })}`, unless: /(?:)/ }])),
  ask: ({ dev }) => `addr show dev ${dev}`,
  read(row, { ns, dev }) {
    const { address, mtu, txqlen = 0, flags, master } = row as LinkRow
    return { kind: 'setting', ns, dev, mac: address as Mac, mtu, txQLen: txqlen, promisc: flags.includes('PROMISC'), allmulti: flags.includes('ALLMULTI'), master: (master ?? '') as IfName | '' }
  },
}

const ORDER = ['mtu', 'mac', 'promisc', 'allmulti', 'txQLen', 'master'] as const

function words({ mac, mtu, txQLen, promisc, allmulti, master }: Settings): string {
  const flag = (name: string, value: boolean | undefined) => (value === undefined ? '' : ` ${name} ${value ? 'on' : 'off'}`)
  return `${mac === undefined ? '' : ` address ${mac}`}${mtu === undefined ? '' : ` mtu ${mtu}`}${txQLen === undefined ? '' : ` txqueuelen ${txQLen}`}${flag('promisc', promisc)}${flag('allmulticast', allmulti)}${master === undefined ? '' : master === '' ? ' nomaster' : ` master ${master}`}`
}
