import { ROTATE } from '../agent/http/server.ts'
import { ValueError } from '../lib/text/errors.ts'
import { answerOf } from './ask.ts'
import { choicesOf, describeOptions, type Entry, type Grammar, type OptionName, readOptions } from './options.ts'
import { print } from './output.ts'

const names: readonly OptionName[] = ['socket', 'json', 'help']

/** Its row in the list of commands. */
export const entry: Entry = { place: 14, about: 'give this node another WireGuard key' }

/** What may follow this command. */
export const grammar: Grammar = { options: choicesOf(names), words: ['rotate'] }

/**
 * Runs `plumb wireguard ARGV` and returns the exit status 0. Throws ValueError for a wrong command line, and when the
 * agent does not answer or refuses.
 */
export async function run(argv: readonly string[]): Promise<number> {
  const { values, words } = readOptions(argv, names, 'plumb wireguard')
  if (values.help) {
    print(`usage: plumb wireguard rotate [options]: give this node another WireGuard key

The other nodes take the new key from the store, and this node begins to use it when the store has it. For a moment
packets from and to this node are lost. Rotate one node after the other.

${describeOptions(names)}

exit status: 0 done, 2 the command line is wrong, no agent answers, or it refuses and says why`)
    return 0
  }
  if (words.length !== 1 || words[0] !== 'rotate')
    throw new ValueError(`plumb wireguard wants the word rotate, not ${JSON.stringify(words.join(' '))}`)
  const { publicKey } = (await answerOf(ROTATE, values, 'POST')) as { readonly publicKey: string }
  print(values.json ? JSON.stringify({ publicKey }, null, 4) : `this node has a new key, with public key ${publicKey}`)
  return 0
}
