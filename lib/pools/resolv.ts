import type { Dns } from '../cni/result.ts'
import { readRegular } from '../os/reading.ts'
import { CniError, CODE, shown } from '../text/errors.ts'

/**
 * Reads a resolv.conf (resolv.conf(5)) as host-local does. Comments are skipped and unknown words ignored. All `search`
 * and `options` lines are added up. Throws CniError 5 when the file cannot be read.
 */
export function readResolv(path: string): Dns {
  const nameservers: string[] = []
  const search: string[] = []
  const options: string[] = []
  let domain: string | undefined
  for (const line of text(path).split('\n')) {
    const [word = '', ...rest] = line.trim().split(/\s+/)
    const [first] = rest
    if (first === undefined || word.startsWith('#') || word.startsWith(';')) continue
    if (word === 'nameserver') nameservers.push(first)
    else if (word === 'domain') domain = first
    else if (word === 'search') search.push(...rest)
    else if (word === 'options') options.push(...rest)
  }
  return {
    ...(nameservers.length > 0 ? { nameservers } : {}),
    ...(domain === undefined ? {} : { domain }),
    ...(search.length > 0 ? { search } : {}),
    ...(options.length > 0 ? { options } : {}),
  }
}

function text(path: string): string {
  try {
    const found = readRegular(path)
    if (found === undefined) throw new Error('there is no such file')
    return found
  } catch (cause) {
    throw new CniError(
      CODE.io,
      `Cannot read ipam.resolvConf ${shown(path)}: want a readable file`,
      (cause as Error).message,
      { cause },
    )
  }
}
