/** The feature of a card, as ethtool(8) calls it. */
export const FEATURE = 'tx-udp_tnl-csum-segmentation'

/** The network card by which the packets of the uplink leave: the link itself, or one below it. */
export interface Card {
  readonly name: string
  /**
   * The card cuts tunnelled packets with checksums by itself (`tx-udp_tnl-csum-segmentation` of ethtool(8)). Undefined
   * when the kernel does not say.
   */
  readonly hasTunnelChecksums: boolean | undefined
}

/** Who computes the checksums of inner packets: the network card, or the node before it cuts and sends them. */
export interface ChecksumOffload {
  /** The card does. Absent: as the kernel has it. */
  readonly isOn?: boolean
  /** A setting says so, and not the card. */
  readonly isGiven?: true
  readonly card?: Card
  /** The choice and its reason, for the status. */
  readonly why: string
}

/**
 * Chooses it for the device of a UDP tunnel. `wish` is the setting; without one the card decides. A card that cannot cut
 * tunnelled packets with checksums makes a tunnel slow or its checksums wrong: 50 to 300 Mbit/s are reported from Linux
 * 6.12 on (calico#11435, flannel#1279, flannel#2152). Calico decides by the same feature. Pure.
 */
export function chooseChecksumOffload(wish: boolean | undefined, card: Card | undefined): ChecksumOffload {
  const ofCard = card && { card }
  if (wish !== undefined) return { isOn: wish, isGiven: true, ...ofCard, why: `${onOff(wish)}, by a setting` }
  if (card?.hasTunnelChecksums === undefined)
    return {
      ...ofCard,
      why: `as the kernel has it: the features of ${card?.name ?? 'the uplink'} could not be found out`,
    }
  const { name, hasTunnelChecksums: isOn } = card
  return { isOn, ...ofCard, why: `${onOff(isOn)}: the card ${name} ${isOn ? 'has' : 'lacks'} ${FEATURE}` }
}

function onOff(isOn: boolean): string {
  return isOn ? 'on' : 'off'
}
