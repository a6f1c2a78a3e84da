import { defineCheck, type SeenFault } from '../check.ts'
import type { Certificate } from '../facts/certificates.ts'
import { shellWord } from '../shell.ts'

/** The most seconds that the clock may be off. */
const OFF_S = 60
const DAY_MS = 86_400_000
/** How long before its end a certificate is told: a week, or a tenth of a short life, when kubelet has renewed it. */
const SOON = { ms: 7 * DAY_MS, part: 0.1 }

/** The clock is wrong, or a certificate of this node ends soon. Then the API server and etcd refuse the node. */
export const check = defineCheck({
  code: 'DR36',
  title: 'clock is wrong, or a certificate ends',
  severity: 'warning',
  reads: ['status', 'certificates', 'now'],
  detect({ status, certificates, now }) {
    const off = Math.round((status?.store.clockOffMs ?? 0) / 1000)
    const effect = 'certificates and tokens do not count'
    const clock: SeenFault = {
      what: `The clock of this node is ${Math.abs(off)} s ${off > 0 ? 'ahead of' : 'behind'} that of the API server`,
      effect,
      commands: ['timedatectl set-ntp true'],
    }
    const ending = certificates.filter(({ from, until }) => until - now < Math.min(SOON.ms, (until - from) * SOON.part))
    return [...(Math.abs(off) > OFF_S ? [clock] : []), ...ending.map((one) => seenOf(one, now))]
  },
})

function seenOf({ path, until }: Certificate, now: number): SeenFault {
  const day = new Date(until).toISOString()
  const what = `The certificate in ${path} ${until < now ? 'ended' : 'ends'} at ${day}`
  const effect = 'the API server and etcd then refuse this node'
  const command = path.startsWith('/etc/kubernetes/')
    ? 'kubeadm certs renew all'
    : path.startsWith('/var/lib/kubelet/')
      ? 'systemctl restart kubelet'
      : `openssl x509 -noout -dates -subject -in ${shellWord(path)}`
  return { what, effect, commands: [command] }
}
