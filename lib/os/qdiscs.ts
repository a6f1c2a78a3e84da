import { attributeText } from './netlink-attributes.ts'
import { askRoute, NLM_F_DUMP } from './rtnetlink.ts'

// linux/rtnetlink.h and linux/pkt_sched.h: struct tcmsg has 20 bytes, with the index of the link at the fourth.
const RTM_GETQDISC = 38
const [TCMSG_BYTES, TCM_IFINDEX, TCA_KIND] = [20, 4, 1]
/** The qdiscs that have filters for packets that enter a link (tc(8)). */
const ENTERING: readonly string[] = ['ingress', 'clsact']

/**
 * The indexes of the links of this thread's namespace on which filters of tc may take packets that enter. Such a filter
 * may send them through another link, as the plugin `bandwidth` does. Throws NoAnswer.
 */
export function linksWithIngress(): ReadonlySet<number> {
  const answers = askRoute(RTM_GETQDISC, new Uint8Array(TCMSG_BYTES), NLM_F_DUMP)
  const own = answers.filter(({ attributes }) => ENTERING.includes(attributeText(attributes.get(TCA_KIND))))
  return new Set(own.map(({ body }) => body.getInt32(TCM_IFINDEX, true)))
}
