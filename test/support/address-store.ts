import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type AddressStore, addressStore } from '../../lib/pools/addresses.ts'
import { openLedger } from '../../lib/pools/owner-index.ts'
import { type RangeSet, readRangeSets } from '../../lib/pools/ranges.ts'
import { CniError } from '../../lib/text/errors.ts'
import { parseCidr, parseIp } from '../../lib/text/ip.ts'
import type { Owner } from '../../lib/text/owner.ts'
import { parse } from '../../lib/text/values.ts'

const network = parse.network('net')

/** The pool of network `net` in a fresh directory. */
export function freshPool() {
  const dataDir = mkdtempSync(join(tmpdir(), 'plumb-pool-'))
  const dir = join(dataDir, 'net')
  const files = (): Record<string, string> => {
    const names = readdirSync(dir).filter((name) => name !== 'lock')
    return Object.fromEntries(names.sort().map((name) => [name, readFileSync(join(dir, name), 'utf8')]))
  }
  return {
    dataDir,
    dir,
    store: (cooldown?: number): AddressStore => addressStore(dataDir, network, cooldown),
    /** What host-local would see: every file but the lock, with its text. */
    files,
    reserved: (): string[] => Object.keys(files()).filter((name) => !name.startsWith('last_')),
    /** A reservation as host-local leaves it: made, then written. */
    foreign(name: string, text: string): void {
      mkdirSync(dir, { recursive: true })
      writeFileSync(join(dir, name), text, { mode: 0o600 })
    },
    /** Whether the index is believed as it stands. */
    trusted: (): boolean => openLedger({ dir, own: join(dataDir, '.plumb/net') }).found === undefined,
    remove: (): void => rmSync(dataDir, { recursive: true, force: true }),
  }
}

/** An attachment to network `net`. */
export function owner(containerId: string, ifname = 'eth0'): Owner {
  return { network, containerId, ifname: parse.ifname(ifname) }
}

/** One range set per text, its subnets joined by `+`. */
export function sets(...subnets: string[]): readonly RangeSet[] {
  return readRangeSets(
    subnets.map((subnet, i) => ({
      at: `ipam.ranges[${i}]`,
      ranges: subnet.split('+').map((one) => ({ subnet: parseCidr(one) })),
    })),
  )
}

/** Takes addresses: their texts, without prefix lengths. */
export function take(store: AddressStore, who: Owner, from: readonly RangeSet[], ...wanted: string[]): string[] {
  return store.take(who, from, wanted.map(parseIp)).map(({ address }) => address.slice(0, address.indexOf('/')))
}

/** A check for assert.throws: a CniError of this code, its message and details. */
export function refusal(code: number, message: RegExp, details = /^/): (cause: unknown) => boolean {
  return (cause) => {
    assert.ok(cause instanceof CniError, String(cause))
    assert.equal(cause.code, code)
    assert.match(cause.message, message)
    assert.match(cause.details, details)
    return true
  }
}
