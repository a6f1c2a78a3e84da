import type { Output, Run } from '../../lib/os/run.ts'

/**
 * Does several works at once, and makes one transaction of their first ones (`nft -f -`). An nft takes longer to start
 * than to add some elements. What else they run, they run by themselves. When nft refuses the transaction, every work
 * that is in it learns so.
 */
export async function jointly<T>(run: Run, works: readonly ((run: Run) => Promise<T>)[]): Promise<T[]> {
  const { promise: output, resolve, reject } = Promise.withResolvers<Output>()
  // Nobody may be there to hear of it.
  output.catch(() => {})
  const scripts: string[] = []
  let left = works.length
  // A work has its first transaction, or has ended without one. The last of them starts nft.
  const settled = () => {
    if (--left === 0 && scripts.length > 0) run(TOOL, scripts.join('')).then(resolve, reject)
  }
  return Promise.all(
    works.map(async (work) => {
      let isSettled = false
      const own: Run = async (argv, stdin, ns) => {
        if (isSettled || argv.join(' ') !== TOOL.join(' ')) return run(argv, stdin, ns)
        isSettled = true
        scripts.push(stdin)
        settled()
        return output
      }
      try {
        return await work(own)
      } finally {
        if (!isSettled) {
          isSettled = true
          settled()
        }
      }
    }),
  )
}

const TOOL = ['nft', '-f', '-']
