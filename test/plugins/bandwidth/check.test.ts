// lane: netns
// Tests plugins/bandwidth.ts.
import assert from 'node:assert/strict'
import { conf } from '../../support/bandwidth.ts'
import { chainedNetwork } from '../../support/chained-network.ts'
import { inNamespaces } from '../../support/harness.ts'

/** What goes wrong, with PORT and IFB in it, and what CHECK says of it. */
const FAULTS: Record<string, { readonly break: string; readonly says: RegExp }> = {
  'the rate is another': {
    break: 'tc qdisc change dev PORT root handle 504c: tbf rate 1mbit burst 125000 limit 90000',
    says: /^shaping of PORT has rate 1000000, want 80000000$/,
  },
  'the burst is another': {
    break: 'tc qdisc change dev IFB root handle 504c: tbf rate 40mbit burst 5000 limit 90000',
    says: /^shaping of IFB has burst \d+, want 100000$/,
  },
  'there is none': {
    break: 'tc qdisc delete dev PORT root',
    says: /^shaping of PORT has discipline noqueue 0:, want tbf$/,
  },
  "it is somebody else's": {
    break: 'tc qdisc replace dev PORT root handle 1: tbf rate 80mbit burst 125000 limit 90000',
    says: /^shaping of PORT has discipline tbf 1:, want tbf$/,
  },
  'the redirection is gone': {
    break: 'tc filter delete dev PORT ingress',
    says: /^redirection of what comes in by PORT to IFB is missing$/,
  },
  'the ifb is gone': {
    break: 'ip link delete IFB',
    says: /^link IFB is missing; shaping of IFB is missing; redirection of what comes in by PORT to IFB has to (\*|off), want IFB$/,
  },
}

describe('bandwidth: CHECK', () => {
  for (const [what, fault] of Object.entries(FAULTS))
    it(
      `${what}: it is named; another ADD puts it right where that is ours to do`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = chainedNetwork(node, conf())
        const result = await net.add(pod)
        await net.check(pod, result)
        const [, port, , ifb] = result['interfaces']
        const named = (text: string) => text.replaceAll('PORT', port.name).replaceAll('IFB', ifb.name)
        const { status, stderr } = await node.exec(['sh', '-ec', named(fault.break)])
        assert.equal(status, 0, stderr)
        const { details } = await net.fails('CHECK', pod, { conf: { ...net.conf, prevResult: result } })
        assert.match(details ?? 'it passed', new RegExp(named(fault.says.source)))
        if (what.startsWith('it is')) return
        await net.add(pod)
        await net.check(pod, result)
      }),
    )
})
