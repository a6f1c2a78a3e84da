import { bitsOf, type Cidr, format, type Ip, split } from './ip.ts'

/** The network of a Cidr, with the host bits cleared. */
export function networkOf(cidr: Cidr): Cidr {
  const { family, first, length } = split(cidr)
  return `${format({ family, bits: first })}/${length}` as Cidr
}

/** The network that contains only this address (/32 or /128). */
export function hostCidr(ip: Ip): Cidr {
  return `${ip}/${isSix(ip) ? 128 : 32}` as Cidr
}

/** Whether an address lies in the network of a Cidr. False when the families differ. */
export function contains(cidr: Cidr, ip: Ip): boolean {
  const { family, first, last } = split(cidr)
  const { family: other, bits } = bitsOf(ip)
  return family === other && bits >= first && bits <= last
}

/** Whether two networks have an address in common. False when the families differ. */
export function meets(one: Cidr, other: Cidr): boolean {
  const [a, b] = [split(one), split(other)]
  return a.family === b.family && a.first <= b.last && b.first <= a.last
}

/** Whether an address or network is IPv6. */
export function isSix(value: Ip | Cidr): boolean {
  return value.includes(':')
}

/** Whether an address is its own subnet (/32, /128). */
export function isAlone(address: Cidr): boolean {
  return address === hostCidr(split(address).ip)
}
