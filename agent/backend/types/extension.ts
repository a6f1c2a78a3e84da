import * as v from 'valibot'
import { shown, ValueError } from '../../../lib/text/errors.ts'
import { field, read } from '../../../lib/text/shape.ts'
import type { Backend, Commands } from '../backend.ts'
import { eachPeer } from '../peers.ts'

interface Conf {
  readonly commands: Commands
  /** What the first command said. Undefined without that command. */
  readonly output?: string
}

const SHAPE = v.object({
  Backend: v.object({
    PreStartupCommand: v.optional(field.text, ''),
    PostStartupCommand: v.optional(field.text, ''),
    SubnetAddCommand: v.optional(field.text, ''),
    SubnetRemoveCommand: v.optional(field.text, ''),
  }),
})

// The commands reach the peer. A peer that is refused, or whose data is no text, gets none.
const reach = eachPeer<Conf>(() => ({ lease, family }) => {
  try {
    if (family === 'v4') textOf(lease.data.v4)
    return []
  } catch (cause) {
    return (cause as Error).message
  }
})

const extension: Backend<Conf, string> = {
  type: 'extension',
  shape: SHAPE,
  conf(options) {
    const { Backend } = read(SHAPE, { Backend: options }).value
    return { commands: commandsOf(Backend) }
  },
  mtu: (_conf, uplink) => uplink,
  announce: (_node, _uplink, { output }) => (output === undefined ? {} : { v4: output }),
  data({ v4 }) {
    const text = textOf(v4)
    return text === undefined ? {} : { v4: text }
  },
  want: (self, peers, uplink, conf, facts) =>
    reach(peers, { type: 'extension', self, uplink: { ...uplink, routes: [] }, conf, facts }),
  answersAt: () => ({}),
  links: () => [],
  commands: { of: ({ commands }) => commands, started: (conf, output) => ({ ...conf, output }) },
}

/**
 * Has commands of the network's configuration do the work, as flannel's extension. One runs before the node has a
 * subnet, and one after it. Two others run for each peer, when it comes and when it goes.
 */
export default extension

function commandsOf(given: Required<Commands>): Commands {
  const { PreStartupCommand, PostStartupCommand, SubnetAddCommand, SubnetRemoveCommand } = given
  const all = { PreStartupCommand, PostStartupCommand, SubnetAddCommand, SubnetRemoveCommand }
  const named = Object.entries(all).filter(([, text]) => text.trim() !== '')
  for (const [key, text] of named)
    if (text.includes('\0'))
      throw new ValueError(`Cannot read Backend.${key}: want a command without the character NUL`)
  return Object.fromEntries(named)
}

function textOf(data: unknown): string | undefined {
  if (data === undefined || typeof data === 'string') return data
  throw new ValueError(`Cannot read BackendData ${shown(data)}: want a text, as PreStartupCommand printed it`)
}
