import type { Call, Verbs } from '../cni/call.ts'
import type { InterfacePlugin, NetConf } from '../cni/plugin.ts'
import { ready } from '../journal/journal.ts'
import { following, isElsewhere } from '../journal/ports.ts'
import { differences } from '../state/observe.ts'
import { CniError, CODE } from '../text/errors.ts'
import { nodeFacts } from '../wiring/node-facts.ts'
import { add } from './add.ts'
import { readConf, requirePod, requirePrevious } from './call.ts'
import { asTheirs, isForeign, logTheirs } from './foreign.ts'
import { together } from './fused.ts'
import { unmoved } from './moved-routes.ts'
import { del, gc, poolOf } from './removal.ts'

/**
 * The verbs of a plugin that makes the container's link from the resources of `wire`. A failed ADD removes all that it
 * made. DEL needs only the owner of the attachment.
 */
export function interfaces<C extends NetConf>(plugin: InterfacePlugin<C>): Verbs {
  return {
    add: (call) => add(plugin, call),
    check: (call) => check(plugin, call),
    del: (call) => del(plugin, call),
    gc: (call) => gc(plugin, call),
    async status(call) {
      const conf = readConf(plugin, call)
      const whole = await together(plugin, conf, call)
      await (await poolOf(conf, call))?.status()
      ready()
      await whole.status?.(conf, call.io.run)
    },
  }
}

async function check<C extends NetConf>(plugin: InterfacePlugin<C>, call: Call): Promise<void> {
  const { at, io } = call
  const conf = readConf(plugin, call)
  requirePod(call)
  const given = requirePrevious(call)
  await (await poolOf(conf, call))?.check()
  const whole = await together(plugin, conf, call)
  const isTheirs = isForeign(plugin, at, given)
  const { shared, own, later = [], noted = [] } = (isTheirs ? plugin : whole).wire(conf, at, given, nodeFacts)
  const parts = noted.flatMap((one) => following(one.own, (claim) => !isElsewhere(claim)))
  const wanted = isTheirs ? asTheirs([...shared, ...own, ...later]) : [...shared, ...own, ...later, ...parts]
  const wrong = [
    ...(await differences(unmoved(at, wanted), io.run)),
    ...((isTheirs && (await whole.checkForeign?.(conf, at, given, io.run))) || []),
  ]
  if (wrong.length > 0)
    throw new CniError(
      CODE.internal,
      `Cannot confirm ${at.ifname} of container ${at.containerId}: ${wrong[0]}`,
      wrong.join('; '),
    )
  if (isTheirs && wanted.length > 0) logTheirs(conf.type, at)
}
