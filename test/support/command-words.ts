import { commands } from '../../cli/commands.ts'
import type { Grammar } from '../../cli/options.ts'

/** The words of every command and verb, such as `doctor` and `cni add`, in the order of the table of commands. */
export async function commandWords(): Promise<string[]> {
  const all = await Promise.all(
    Object.entries(commands).map(async ([name, { load }]) => wordsOf(name, (await load()).grammar)),
  )
  return all.flat()
}

function wordsOf(words: string, { commands: verbs = {} }: Grammar): string[] {
  return [words, ...Object.entries(verbs).flatMap(([verb, { grammar }]) => wordsOf(`${words} ${verb}`, grammar))]
}
