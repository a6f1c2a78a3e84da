import type { FactSources } from '../agent/doctor/facts/facts.ts'
import type { ServiceView } from '../agent/services/view.ts'
import type { Status } from '../agent/state/status.ts'
import { SOCKET as POLICY_SOCKET } from '../lib/nft/admission.ts'
import { answerOf } from './ask.ts'
import type { Given } from './options.ts'

/** What names the folders of networks and plugins. */
const NAMES = ['conf-dir', 'bin-dir'] as const
const VARIABLES = ['NETCONFPATH', 'CNI_PATH'] as const

/** Where the doctor reads the facts of this node, by the options of a command. */
export function placesOf(values: Given['values']): FactSources {
  const bins = values['bin-dir'] ?? [process.env['CNI_PATH'] ?? '/opt/cni/bin']
  return {
    subnetFile: values['subnet-file'] ?? '/run/flannel/subnet.env',
    confDir: values['conf-dir'] ?? process.env['NETCONFPATH'] ?? '/etc/cni/net.d',
    isUsual: NAMES.every((name) => values[name] === undefined) && VARIABLES.every((name) => !process.env[name]),
    binDirs: bins.flatMap((one) => one.split(':')).filter((one) => one !== ''),
    written: ['/run/plumb', '/var/lib/plumb'],
    policySocket: values['policy-socket'] ?? POLICY_SOCKET,
    services: async () => (await answerOf('/services', values)) as readonly ServiceView[] | null,
    status: async () => (await answerOf('/status', values)) as Status,
  }
}
