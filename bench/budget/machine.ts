import { join } from 'node:path'
import { commandInMachine } from '../../test/support/machine/machine.ts'
import type { Found, Order } from './guest.ts'

const GUEST = join(import.meta.dir, 'guest.ts')

/**
 * Measures in a virtual machine whose clock counts instructions. `hear` gets each figure as it comes. Throws Error with
 * what the machine said last when it did not measure all.
 */
export async function measure(order: Order, hear: (found: Found) => void): Promise<void> {
  let [rest, isWhole] = ['', false]
  const quoted = `'${JSON.stringify(order).replaceAll("'", `'\\''`)}'`
  const line = `PLUMB_SANDBOX=1 ${process.execPath} ${GUEST} ${quoted} >/dev/output 2>&1; sleep 1`
  const last = await commandInMachine(
    line,
    (text) => {
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const found of lines.filter(Boolean).map((one): Found => JSON.parse(one))) {
        if (found.what === 'end') isWhole = true
        hear(found)
      }
    },
    'counted',
  )
  if (!isWhole) throw new Error(`the counted machine did not measure all: ${last}`)
}
