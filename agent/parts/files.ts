import type { Uplink } from '../backend/uplink.ts'
import { both } from '../lease/families.ts'
import type { Lease } from '../lease/lease.ts'
import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { BasePart } from './base.ts'
import type { FileInputs, NetworkInputs, Reports } from './inputs.ts'

/** What the part needs of the agent. */
export type FilesPartOptions = Pick<NetworkInputs, 'backend' | 'options'> &
  Pick<FileInputs, 'leased'> &
  Pick<Reports, 'log'> & {
    /**
     * Called with the lease after each attempt to write the file, successful or not. Routes and rules are made after it.
     */
    served(lease: Lease): void
  }

/** Keeps subnet.env, the file that gives the node's subnet to the CNI plugin `flannel`. */
export class FilesPart extends BasePart<FilesPartOptions> {
  readonly name = 'files'
  readonly trouble = 'Cannot tell the node its subnet'
  readonly quietMs = 0
  #written = ''

  async step(): Promise<Outcome> {
    const { lease, choice } = this.now
    if (!lease || !choice) return WAITING
    try {
      this.#write(lease, choice.uplink)
    } finally {
      this.given.served(lease)
    }
    return DONE
  }

  #write(lease: Lease, uplink: Pick<Uplink, 'mtu' | 'tunnel'>): void {
    const { backend, options, leased, log } = this.given
    const mtu = backend.mtu(options, uplink.mtu, uplink.tunnel)
    const wanted = JSON.stringify([lease.subnets, mtu])
    if (wanted === this.#written) {
      if (!this.repairs.isHeld(this)) this.repairs.ofPart(this, 'file', leased(lease, mtu))
      return
    }
    leased(lease, mtu)
    this.#written = wanted
    this.now.mtu = mtu
    const until = lease.expires === undefined ? '' : ` until ${new Date(lease.expires).toISOString()}`
    log(`agent: this node has ${both(lease.subnets).join(' ')}${until} mtu=${mtu}`)
  }
}
