// The globals that the plugins use beside those of the language. The engine runs this file first.
// test/architecture.test.ts names them.
declare const host: { encode(text: string): Uint8Array; decode(bytes: Uint8Array): string; now(): number }

const BOM = '\ufeff'
const globals = globalThis as unknown as Record<string, unknown>

globals['TextEncoder'] = class {
  encode(text = ''): Uint8Array {
    return host.encode(text.isWellFormed() ? text : text.toWellFormed())
  }
}
globals['TextDecoder'] = class {
  readonly #isBomKept: boolean
  constructor(_encoding = 'utf-8', { ignoreBOM = false } = {}) {
    this.#isBomKept = ignoreBOM
  }
  decode(bytes: Uint8Array): string {
    const text = host.decode(bytes)
    return !this.#isBomKept && text.startsWith(BOM) ? text.slice(1) : text
  }
}
globals['performance'] = { now: host.now }
