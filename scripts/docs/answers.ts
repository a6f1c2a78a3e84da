import type { BgpStatus } from '../../agent/bgp/view.ts'
import type { Comparison } from '../../agent/policy/comparison.ts'
import type { PodDetail, PodSummary } from '../../agent/policy/view.ts'
import type { ServiceView } from '../../agent/services/view.ts'
import type { Status } from '../../agent/state/status.ts'
import type { ConnectivityReport as Connectivity } from '../../cli/connectivity.ts'
import type { Measured } from '../../cli/doctor.ts'
import type { Fleet } from '../../cli/fleet/fleet.ts'
import type { Row } from '../../cli/leases.ts'
import type { Tested } from '../../cli/policy.ts'
import type { DroppedReport, TraceReport } from '../../cli/trace.ts'

/** What commands print with `--json`, by the name of the schema in docs/schemas. */
export interface Answers {
  readonly status: Status
  readonly top: Fleet
  readonly leases: readonly Row[]
  readonly bgp: BgpStatus | null
  readonly services: readonly ServiceView[]
  readonly doctor: Measured
  readonly trace: TraceReport
  readonly 'trace-dropped': DroppedReport
  readonly connectivity: Connectivity
  readonly policy: readonly PodSummary[]
  readonly 'policy-compare': Comparison
  readonly 'policy-show': PodDetail
  readonly 'policy-test': Tested
}
