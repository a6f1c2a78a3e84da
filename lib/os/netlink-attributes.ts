// The two upper bits say how to read an attribute (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const TYPE_MASK = 0x3fff

/** The attributes of a netlink message by type, without their headers. */
export type Attributes = ReadonlyMap<number, DataView>

/** The attributes of a message from an offset on. */
export function attributesOf(message: DataView, from = 0): Attributes {
  const found = new Map<number, DataView>()
  for (let at = from, size = 0; at + 4 <= message.byteLength; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4 || at + size > message.byteLength) break
    found.set(
      message.getUint16(at + 2, true) & TYPE_MASK,
      new DataView(message.buffer, message.byteOffset + at + 4, size - 4),
    )
  }
  return found
}

/** The text of an attribute, without the NUL at its end. Empty when there is no attribute. */
export function attributeText(attribute: DataView | undefined): string {
  if (!attribute) return ''
  const text = new TextDecoder().decode(new Uint8Array(attribute.buffer, attribute.byteOffset, attribute.byteLength))
  const end = text.indexOf('\0')
  return end < 0 ? text : text.slice(0, end)
}

/** The 32-bit number of an attribute. Undefined when there is no attribute. */
export function numberOf(attribute: DataView | undefined): number | undefined {
  return attribute && attribute.byteLength >= 4 ? attribute.getUint32(0, true) : undefined
}
