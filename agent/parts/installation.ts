import { DONE, type Outcome, WAITING } from '../scheduler/part.ts'
import { BasePart } from './base.ts'
import type { FileInputs } from './inputs.ts'

/** When a change in the folders of plugins and networks is looked at, in milliseconds. `plumb uninstall` is done by then. */
const REINSTALL_MS = 3000

/** What the part needs of the agent. */
export interface InstallationPartOptions extends Pick<FileInputs, 'synced' | 'reinstall'> {
  /** Whether all other parts have done their work. */
  isTime(): boolean
  /** Called after each installation. */
  installed(): void
}

/**
 * Does the last work once: it installs the plugins and their configuration, tells systemd, and removes flannel's rules.
 * Then it puts back what somebody removes of the plugins and of their network.
 */
export class InstallationPart extends BasePart<InstallationPartOptions> {
  readonly name = 'installation'
  readonly trouble = 'Cannot finish what the node needs'
  readonly quietMs = 0

  /** Triggers the part after a change in the folders of plugins and networks. */
  foldersChanged(): void {
    this.queue.add('networks', REINSTALL_MS)
  }

  async step(): Promise<Outcome> {
    const { isTime, synced, reinstall, installed } = this.given
    if (this.now.isSynced) {
      const missing = await reinstall(this.repairs.held())
      const files = missing.map((path) => ({ key: path, title: path }))
      this.repairs.note(this, 'file', files)
      if (files.length > 0) installed()
      return DONE
    }
    if (!isTime()) return WAITING
    await synced()
    installed()
    this.now.isSynced = true
    return DONE
  }
}
