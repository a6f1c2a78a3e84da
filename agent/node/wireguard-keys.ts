import { createPrivateKey, createPublicKey, randomBytes } from 'node:crypto'
import { statSync } from 'node:fs'
import { draftOf, writeAtomic } from '../../lib/os/files.ts'
import { log } from '../../lib/os/log.ts'
import { listFiles, readText } from '../../lib/os/reading.ts'
import { ValueError } from '../../lib/text/errors.ts'
import { Secret } from '../../lib/text/secret.ts'

/** A private key with the public key that belongs to it. */
interface KeyPair {
  readonly publicKey: string
  readonly privateKey: Secret
}

// RFC 8410: the bytes of a private X25519 key in PKCS #8, before the key itself.
const PKCS8 = Buffer.from('302e020100300506032b656e04220420', 'hex')
/** The key file of flannel (pkg/backend/wireguard, setupKeys). */
const FLANNELS = '/run/flannel/wgkey'

/**
 * The WireGuard keys of a node. The private key is in a file of the state directory that only root can read. The file
 * has the name of the node. A copy of the disk under another name therefore makes a key of its own. After a rotation
 * the file also has the former key: peers use it until the store has the new one, and the agent may start before that.
 */
export class WireguardKeys {
  readonly #path: string
  #current: KeyPair
  #former: KeyPair | undefined

  private constructor(path: string, current: KeyPair, former?: KeyPair) {
    this.#path = path
    this.#current = current
    this.#former = former
  }

  /**
   * Reads the key of a node. Without one it takes over flannel's key, so that no peer notices a change, or makes one.
   * `flannels` is the path of flannel's key. Throws ValueError for a file that has no key, and Error when the file
   * cannot be written.
   */
  static open(stateDir: string, node: string, flannels = process.env['WIREGUARD_KEY_FILE'] || FLANNELS): WireguardKeys {
    const path = wireguardKeyPath(stateDir, node)
    const own = readText(path)
    if (own !== undefined) {
      const [current, former] = pairsOf(own, path)
      // As after a copy of the disk by another program.
      if ((statSync(path).mode & 0o077) !== 0) save(path, former ? [current, former] : [current])
      return new WireguardKeys(path, current, former)
    }
    const theirs = readText(flannels)
    const pair = theirs === undefined ? newPair() : pairOf(theirs, flannels)
    save(path, [pair])
    if (theirs !== undefined)
      log(`agent: took over the WireGuard key in ${flannels}, with public key ${pair.publicKey}`)
    return new WireguardKeys(path, pair)
  }

  /** The key that peers should use. */
  get publicKey(): string {
    return this.#current.publicKey
  }

  /** The pair of a public key that this node announced. That of an unknown key is the current pair. */
  pairOf(publicKey: string | undefined): KeyPair {
    return this.#former?.publicKey === publicKey && this.#former ? this.#former : this.#current
  }

  /**
   * Makes a new key and returns its public key. The former key serves until peers can know the new one. `used` is the
   * public key that the store has. Throws Error while it has the former one, because peers use only that, and when the
   * file cannot be written. Then nothing changes.
   */
  rotate(used: string | undefined): string {
    if (used !== undefined && used === this.#former?.publicKey) {
      const why = `the store does not have the key of the last rotation yet, ${this.#current.publicKey}`
      throw new Error(`Cannot give this node another key: ${why}; want the store to answer first (see: plumb status)`)
    }
    const pair = newPair()
    save(this.#path, [pair, this.#current])
    this.#former = this.#current
    this.#current = pair
    return pair.publicKey
  }

  /** Only the public keys. */
  toJSON(): readonly string[] {
    return [this.#current, this.#former].flatMap((pair) => (pair ? [pair.publicKey] : []))
  }
}

/** The path of a node's WireGuard key. */
export function wireguardKeyPath(stateDir: string, node: string): string {
  return `${stateDir}/wireguard-${node}.key`
}

/** The paths of the WireGuard keys that a node had under its names. A copied disk has those of another node. */
export function wireguardKeyPaths(stateDir: string): string[] {
  return listFiles(stateDir)
    .filter((name) => /^wireguard-.+\.key$/.test(name))
    .map((name) => `${stateDir}/${name}`)
}

/** Whether a text is a WireGuard key: 32 bytes in base64, and not all of them zero. */
export function isWireguardKey(text: unknown): text is string {
  if (typeof text !== 'string' || !/^[A-Za-z0-9+/]{43}=$/.test(text)) return false
  const bytes = Buffer.from(text, 'base64')
  return bytes.toString('base64') === text && bytes.some((byte) => byte !== 0)
}

function newPair(): KeyPair {
  const bytes = randomBytes(32)
  // RFC 7748, section 5.
  bytes[0] = (bytes[0] as number) & 248
  bytes[31] = ((bytes[31] as number) & 127) | 64
  return pairOf(bytes.toString('base64'), 'a new key')
}

function pairOf(text: string, place: string): KeyPair {
  const key = text.trim()
  // The text stays out of the message.
  if (!isWireguardKey(key)) throw new ValueError(`Cannot read ${place}: want a WireGuard key, 44 characters in base64`)
  const der = Buffer.concat([PKCS8, Buffer.from(key, 'base64')])
  const { x } = createPublicKey(createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })).export({ format: 'jwk' })
  return { publicKey: Buffer.from(x as string, 'base64url').toString('base64'), privateKey: new Secret(key) }
}

// The current pair, then the former one.
function pairsOf(text: string, path: string): [KeyPair, KeyPair | undefined] {
  const [current = '', former, ...more] = text.trimEnd().split('\n')
  return [pairOf(more.length > 0 ? text : current, path), former === undefined ? undefined : pairOf(former, path)]
}

function save(path: string, pairs: readonly KeyPair[]): void {
  try {
    const text = pairs.map(({ privateKey }) => `${privateKey.reveal()}\n`).join('')
    writeAtomic(path, text, { mode: 0o400, by: draftOf(path) })
  } catch (cause) {
    throw new Error(`Cannot write ${path}: ${(cause as Error).message}`, { cause })
  }
}
