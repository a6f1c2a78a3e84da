import { remove } from './files.ts'
import { fs } from './fs.ts'
import { isEmptied, nameOf, note } from './held.ts'
import { listFiles } from './reading.ts'

// A folder per address of a pod, in it a symbolic link to each record of an attachment that has it: who gets the address next finds them without reading all records.
const DIR = '/run/cni/plumb/addresses'

/** Notes that a record is of an attachment with these addresses. */
export function address(record: string, ips: readonly string[]): void {
  for (const ip of ips) note(`${DIR}/${ip}`, record)
}

/** Takes that note away. */
export function unaddress(record: string, ips: readonly string[]): void {
  for (const ip of ips) {
    remove(`${DIR}/${ip}/${nameOf(record)}`)
    isEmptied(`${DIR}/${ip}`)
  }
}

/** The records of attachments that have, or had, an address. */
export function addressed(ip: string): string[] {
  return listFiles(`${DIR}/${ip}`).flatMap((name) => {
    try {
      return [fs.readlinkSync(`${DIR}/${ip}/${name}`)]
    } catch {
      // It has gone meanwhile.
      return []
    }
  })
}
