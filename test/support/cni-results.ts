import type { Result } from '../../lib/cni/result.ts'
import { type Cidr, format } from '../../lib/text/ip.ts'
import fc from './properties.ts'

const ip = fc.oneof(
  fc.bigInt(0n, 2n ** 32n - 1n).map((bits) => format({ family: 4, bits })),
  fc.bigInt(2n ** 64n, 2n ** 128n - 1n).map((bits) => format({ family: 6, bits })),
)
const cidr = ip.chain((one) =>
  fc.integer({ min: 0, max: familyOf(one) === 4 ? 32 : 128 }).map((length) => `${one}/${length}` as Cidr),
)
const size = fc.integer({ min: 1, max: 2 ** 32 - 1 })
const word = fc.string({ minLength: 1, maxLength: 12, unit: fc.constantFrom(...'abz09.-_<>&"\\/ é\u2028') })
const words = fc.array(word, { minLength: 1, maxLength: 3 })
const interfaces = fc.array(
  fc.record(
    {
      name: word,
      mac: fc.constantFrom('02:00:00:00:00:01', 'AA:bb:cc:00:11:22'),
      mtu: size,
      sandbox: word,
      socketPath: word,
      pciID: word,
    },
    { requiredKeys: ['name'] },
  ),
  { minLength: 1, maxLength: 3 },
)
const ips = fc.array(fc.record({ interface: fc.nat(3), address: cidr, gateway: ip }, { requiredKeys: ['address'] }), {
  minLength: 1,
  maxLength: 4,
})
const routes = fc.array(
  fc.record(
    { dst: cidr, gw: ip, mtu: size, advmss: size, priority: size, table: fc.nat(9999), scope: fc.nat(255) },
    { requiredKeys: ['dst'] },
  ),
  { minLength: 1, maxLength: 4 },
)
const dns = fc.record({ nameservers: words, domain: word, search: words, options: words }, { requiredKeys: ['domain'] })
/** Results of any kind. */
export const results = fc
  .record({ interfaces, ips, routes, dns }, { requiredKeys: [] })
  .map((one) => JSON.parse(JSON.stringify(one)) as Result)

/** A result as versions before 1.1.0 have it. */
export function withoutDetails(result: Result): Result {
  const { interfaces, ...rest } = result
  return interfaces
    ? { interfaces: interfaces.map(({ mtu: _, pciID: __, socketPath: ___, ...one }) => one), ...rest }
    : rest
}

function familyOf(cidr: string): 4 | 6 {
  return cidr.includes(':') ? 6 : 4
}
