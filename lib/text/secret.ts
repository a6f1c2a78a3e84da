/** A text that nothing shows: no log, no JSON, no error message. Only `reveal` gives it. */
export class Secret {
  static readonly #numbers = new Map<string, number>()
  /** The same number for the same text, in this process. It does not lead back to the text. */
  readonly id: number
  readonly #text: string

  constructor(text: string) {
    this.#text = text
    this.id = Secret.#numbers.get(text) ?? Secret.#numbers.size + 1
    Secret.#numbers.set(text, this.id)
  }

  reveal(): string {
    return this.#text
  }

  toString(): string {
    return `(secret ${this.id})`
  }

  toJSON(): string {
    return this.toString()
  }
}
