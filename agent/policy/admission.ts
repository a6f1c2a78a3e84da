import * as v from 'valibot'
import { type Command, command } from '../../lib/os/answers.ts'
import { CniError, CODE, shown, ValueError } from '../../lib/text/errors.ts'
import { field } from '../../lib/text/shape.ts'
import { parse } from '../../lib/text/values.ts'
import type { Endpoint } from './endpoints.ts'

// The questions of the plugin `policy`: `{"command": "admit", …}` before ADD returns, and `{"command": "release", …}`
// at DEL.

/** How long `admit` waits when the question does not say, in milliseconds. */
const WAIT_MS = 10_000

/** What answers the questions. `admit` and `release` are answered when the kernel has the result. */
export interface Admission {
  /** Throws CniError 11 while the objects of the cluster are not known. */
  ready(): void
  /** Throws CniError 11 when the pod is not known to the agent in time. The pod is closed then. */
  admit(endpoint: Endpoint, waitMs: number, signal: AbortSignal): Promise<void>
  /** An unknown attachment is no error. */
  release(one: Pick<Endpoint, 'containerId' | 'ifname'>, signal: AbortSignal): Promise<void>
}

const attachment = { command: field.text, containerId: field.by(parse.containerId), ifname: field.ifname }
const admit = v.object({
  ...attachment,
  namespace: field.by(objectName),
  pod: field.by(objectName),
  uid: v.exactOptional(field.by(objectUid)),
  addresses: v.array(field.ip),
  link: v.exactOptional(field.ifname),
  waitMs: v.optional(field.int(0, 600_000), WAIT_MS),
})
const release = v.object(attachment)

/** The commands of the plugin `policy`, for the table of `commands` (lib/os/answers.ts). */
export function admissionCommands(to: Admission): Readonly<Record<string, Command>> {
  return {
    ready: command(v.object({ command: field.text }), async () => {
      to.ready()
      return {}
    }),
    admit: command(admit, async ({ command: _, waitMs, ...endpoint }, signal) => {
      await to.admit(endpoint, waitMs, signal)
      return {}
    }),
    release: command(release, async ({ command: _, ...one }, signal) => {
      await to.release(one, signal)
      return {}
    }),
  }
}

/** Steps of a part, and the questions that wait for one that saw their attachment. */
export class Waiting {
  readonly #all = new Map<object, { readonly isDone: () => boolean; readonly resolve: () => void }>()

  /** Whether no question waits. */
  get isEmpty(): boolean {
    return this.#all.size === 0
  }

  /**
   * Waits for a step that ended well and began when `isDone` held. `why` gives the reason for the error after `waitMs`.
   * Throws CniError 11.
   */
  wait(isDone: () => boolean, waitMs: number, signal: AbortSignal, why: () => string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const key = {}
    const end = () => {
      clearTimeout(timer)
      this.#all.delete(key)
    }
    const timer = setTimeout(() => {
      end()
      reject(
        new CniError(
          CODE.tryLater,
          `Cannot apply network policy within ${waitMs} ms: ${why()}`,
          'the pod stays closed until the agent can',
        ),
      )
    }, waitMs)
    const done = () => {
      end()
      resolve()
    }
    this.#all.set(key, { isDone, resolve: done })
    signal.addEventListener('abort', done, { once: true })
    return promise
  }

  /** Begins a step. Call what it gives after the step has ended well. */
  begin(): () => void {
    const ready = [...this.#all.values()].filter(({ isDone }) => isDone())
    return () => {
      for (const { resolve } of ready) resolve()
    }
  }
}

function objectUid(value: unknown): string {
  if (typeof value !== 'string' || !/^[\w.-]{1,128}$/.test(value))
    throw new ValueError(`${shown(value)}: want the UID of a Kubernetes object`)
  return value
}

// The names of namespaces and pods (RFC 1123 subdomain).
function objectName(value: unknown): string {
  if (typeof value !== 'string' || !/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(value))
    throw new ValueError(`${shown(value)}: want the name of a Kubernetes object, as web-0`)
  return value
}
