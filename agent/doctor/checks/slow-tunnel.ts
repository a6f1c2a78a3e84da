import { FEATURE } from '../../backend/checksum-offload.ts'
import { defineCheck } from '../check.ts'
import { agentSetting } from '../shell.ts'

/** A setting leaves the checksums of tunnelled packets to a card that cannot cut such packets (calico#11435). */
export const check = defineCheck({
  code: 'DR56',
  title: 'checksum offload does not fit the card',
  severity: 'warning',
  reads: ['agent'],
  detect({ agent }) {
    const { isOn, isGiven, card } = agent?.uplink?.checksumOffload ?? {}
    if (!isOn || !isGiven || card?.hasTunnelChecksums !== false) return []
    return [
      {
        what: `A setting switches the checksum offload of the tunnel on, and the card ${card.name} lacks ${FEATURE}`,
        effect: 'the tunnel is slow from Linux 6.12 on, or its checksums are wrong',
        commands: agentSetting('tx-checksum-offload', 'off'),
      },
    ]
  },
})
