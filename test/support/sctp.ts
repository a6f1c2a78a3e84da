import { openWire } from '../../lib/os/packets.ts'
import { parse } from '../../lib/text/values.ts'
import type { Namespace } from './harness.ts'

/**
 * Sends the first packet of an SCTP association (RFC 9260, INIT) over eth0, because the kernel of the tests has no SCTP
 * sockets. `to` is the MAC of the router.
 */
export function sendInit(
  from: Namespace,
  to: string,
  source: string,
  destination: string,
  port: number,
  sourcePort: number,
): void {
  const wire = openWire(parse.netns(from.path), 'eth0', 4)
  try {
    wire.send(parse.mac(to), packet(source, destination, port, sourcePort))
  } finally {
    wire.close()
  }
}

function packet(source: string, destination: string, port: number, sourcePort: number): Uint8Array {
  const [IP, SCTP, INIT] = [20, 12, 20]
  const bytes = new Uint8Array(IP + SCTP + INIT)
  const view = new DataView(bytes.buffer)
  view.setUint8(0, 0x45)
  view.setUint16(2, bytes.length)
  view.setUint8(8, 64)
  view.setUint8(9, 132)
  bytes.set(source.split('.').map(Number), 12)
  bytes.set(destination.split('.').map(Number), 16)
  view.setUint16(10, onesComplement(bytes.subarray(0, IP)))
  view.setUint16(IP, sourcePort)
  view.setUint16(IP + 2, port)
  // The chunk INIT: its length, a tag, a window, one stream each way, and the first number.
  view.setUint8(IP + SCTP, 1)
  view.setUint16(IP + SCTP + 2, INIT)
  view.setUint32(IP + SCTP + 4, 0x12345678)
  view.setUint32(IP + SCTP + 8, 65_536)
  view.setUint16(IP + SCTP + 12, 1)
  view.setUint16(IP + SCTP + 14, 1)
  view.setUint32(IP + SCTP + 16, 1)
  view.setUint32(IP + 8, crc32c(bytes.subarray(IP)), true)
  return bytes
}

function onesComplement(header: Uint8Array): number {
  let sum = 0
  for (let i = 0; i < header.length; i += 2) sum += ((header[i] as number) << 8) | (header[i + 1] as number)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16)
  return ~sum & 0xffff
}

function crc32c(bytes: Uint8Array): number {
  let crc = 0xffff_ffff
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f6_3b78 : crc >>> 1
  }
  return (crc ^ 0xffff_ffff) >>> 0
}
