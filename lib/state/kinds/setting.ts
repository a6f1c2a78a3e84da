import type { IfName, Mac, Netns } from '../../text/values.ts'
import { type Handler, inPodOf, type Line } from '../handler.ts'
import type { LinkRow } from './link-shape.ts'

/** The settings of a link of any program. Undefined settings stay as they are, and they are not compared. */
export interface Settings {
  readonly mac?: Mac
  readonly mtu?: number
  readonly txQLen?: number
  readonly promisc?: boolean
  readonly allmulti?: boolean
  /** The master of the link. Empty when the link has no master. */
  readonly master?: IfName | ''
}

/** The settings of a link that another plugin made. */
export interface Setting extends Settings {
  readonly kind: 'setting'
  readonly ns: Netns
  readonly dev: IfName
  /** The earlier values of the settings that changed. `drop` restores them. */
  readonly before?: Settings
}

/** Settings of a link that another plugin made. One line sets all of them. `drop` restores the changed ones. */
export const setting: Handler<Setting> = {
  tool: 'ip',
  title: ({ ns, dev }) => `link ${dev}${inPodOf(ns)}`,
  purpose,
  goesWithLink: true,
  key: ({ ns, dev }) => `setting ${ns} ${dev}`,
  put: ({ dev, ...want }) => [{ text: `link set dev ${dev}${words(want)}` }],
  // Restores each setting in a separate line, in the order of the reference plugin. Ignores all errors, because a DEL
  // must continue.
  drop: ({ dev, before = {} }) =>
    ORDER.flatMap((key) => {
      if (before[key] === undefined) return []
      return [{ text: `link set dev ${dev}${words({ [key]: before[key] })}`, unless: /(?:)/ }]
    }),
  ask: ({ dev }) => `addr show dev ${dev}`,
  read(row, { ns, dev }) {
    const { address, mtu, txqlen = 0, flags, master } = row as LinkRow
    return {
      kind: 'setting',
      ns,
      dev,
      mac: address as Mac,
      mtu,
      txQLen: txqlen,
      promisc: flags.includes('PROMISC'),
      allmulti: flags.includes('ALLMULTI'),
      master: (master ?? '') as IfName | '',
    }
  },
}

const ORDER = ['mtu', 'mac', 'promisc', 'allmulti', 'txQLen', 'master'] as const

function words({ mac, mtu, txQLen, promisc, allmulti, master }: Settings): string {
  const flag = (name: string, value: boolean | undefined) =>
    value === undefined ? '' : ` ${name} ${value ? 'on' : 'off'}`
  const address = mac === undefined ? '' : ` address ${mac}`
  const size = mtu === undefined ? '' : ` mtu ${mtu}`
  const queue = txQLen === undefined ? '' : ` txqueuelen ${txQLen}`
  const port = master === '' ? ' nomaster' : ` master ${master}`
  const flags = `${flag('promisc', promisc)}${flag('allmulticast', allmulti)}`
  return `${address}${size}${queue}${flags}${master === undefined ? '' : port}`
}

function purpose({ ns, dev, mac, mtu, txQLen, promisc, allmulti, master }: Setting, _: Line, gone: boolean): string {
  if (gone) return `${dev} is as it was before`
  const parts = [
    master && `a port of ${master}`,
    mac && 'its address',
    mtu && `packets of ${mtu} bytes`,
    txQLen !== undefined && `a queue of ${txQLen} packets`,
    promisc !== undefined && 'whose packets it takes',
    allmulti !== undefined && 'which groups it listens to',
  ]
  return `${dev}${ns === 'host' ? ', the other end of the pair' : ''}: ${parts.filter(Boolean).join(', ')}`
}
