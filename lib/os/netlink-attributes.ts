// The two upper bits say how to read an attribute (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const TYPE_MASK = 0x3fff

/** The attributes of a netlink message by type, without their headers. A link has a hundred, and plumb reads a dozen. */
export class Attributes {
  readonly #message: DataView
  // The place of each attribute's header.
  readonly #places: ReadonlyMap<number, number>

  constructor(message: DataView, places: ReadonlyMap<number, number>) {
    this.#message = message
    this.#places = places
  }

  /** The bytes of an attribute. Undefined when the message has none of this type. */
  get(type: number): DataView | undefined {
    const at = this.#places.get(type)
    if (at === undefined) return undefined
    const { buffer, byteOffset } = this.#message
    return new DataView(buffer, byteOffset + at + 4, this.#message.getUint16(at, true) - 4)
  }

  has(type: number): boolean {
    return this.#places.has(type)
  }
}

/** The attributes of a message from an offset on. Of several of one type, the last one counts. */
export function attributesOf(message: DataView, from = 0): Attributes {
  const places = new Map<number, number>()
  const end = message.byteLength
  for (let at = from, size = 0; at + 4 <= end; at += (size + 3) & ~3) {
    size = message.getUint16(at, true)
    if (size < 4 || at + size > end) break
    places.set(message.getUint16(at + 2, true) & TYPE_MASK, at)
  }
  return new Attributes(message, places)
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
