import type { Run } from '../../../lib/os/run.ts'
import type { Fact } from './facts.ts'
import { ruleset } from './ruleset.ts'

/** The program `nft`, and what it cannot read. */
export interface Nft {
  /** Such as `1.0.6`. Undefined when it does not say. */
  readonly version: string | undefined
  /** Why it cannot list all rules. Absent when it can. */
  readonly failure?: string
  /** The tables that it cannot list, such as `inet newer`. */
  readonly tables: readonly string[]
}

/** The program nft, and what it cannot read. */
export const nft: Fact<Nft> = {
  async read({ run, of }) {
    const unread = await of(ruleset).then(
      ({ unread }) => unread,
      (cause: Error) => cause.message,
    )
    return readNft(run, unread)
  },
  inAgent: { missing: 'the version of nft' },
}

/** The most tables that are listed one by one. */
const MOST = 32

/** Reads the version, and looks for the tables behind a failure to list all rules. Throws Error. */
export async function readNft(run: Run, failure: string | undefined): Promise<Nft> {
  const { stdout } = await run(['nft', '--version'], '')
  const [, version] = /\bv(\d+\.\d+(?:\.\d+)?)/.exec(stdout) ?? []
  if (failure === undefined) return { version, tables: [] }
  const listed = await run(['nft', 'list', 'tables'], '')
  const all = [...listed.stdout.matchAll(/^table (\w+ \S+)$/gm)].flatMap(([, name]) => name ?? [])
  const isUnreadable = async (name: string) => {
    const { status, stderr } = await run(['nft', '-j', '-t', 'list', 'table', ...name.split(' ')], '')
    return status !== 0 || /^netlink: Error/m.test(stderr)
  }
  const found = await Promise.all(all.slice(0, MOST).map(async (name) => ((await isUnreadable(name)) ? [name] : [])))
  return { version, failure, tables: found.flat() }
}
