import { holds, isFree, PORTS } from './claimed.ts'
import { remove, withLock } from './files.ts'
import { fs } from './fs.ts'
import type { Claim } from './state.ts'

/** Reserves host ports for their owners, all or none. What another attachment of the same container has stays with that one: podman sends the same ports for each network of a container. Throws CniError 7 naming the owner of one that is taken; a claim whose owner has no record any more counts for nothing. */
export function take(claims: readonly Claim[]): void {
  withLock(`${PORTS}/lock`, () => {
    for (const { protocol, port, ip, record } of claims.filter(isFree)) {
      const dir = `${PORTS}/${protocol}-${port}`
      fs.mkdirSync(dir, 0o755)
      remove(`${dir}/${ip}`)
      try {
        fs.symlinkSync(record, `${dir}/${ip}`)
      } catch (cause) {
        // A full disk: nobody has the port.
        removeEmpty(dir)
        throw cause
      }
    }
  })
}

/** Gives them back, those that are still their owner's; of others what a call left that was killed here: a folder with nothing in it. */
export function release(claims: readonly Claim[]): void {
  withLock(`${PORTS}/lock`, () => {
    for (const claim of claims) {
      const dir = `${PORTS}/${claim.protocol}-${claim.port}`
      if (holds(claim)) remove(`${dir}/${claim.ip}`)
      removeEmpty(dir)
    }
  })
}

function removeEmpty(dir: string): void {
  try {
    fs.rmdirSync(dir)
  } catch {
    // It is gone, or another address of the port has an owner.
  }
}
