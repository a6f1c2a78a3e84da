/** What stands instead of a secret. */
export const REMOVED = '(removed)'

const WORDS =
  /pass(word|wd|phrase|code)|secret|token|psk|presharedkey|privatekey|apikey|accesskey|signingkey|encryptionkey|clientkey|keydata|certificatedata|credential|authorization|cookie|fastopenkey|bearer|wgkey/
const ENDINGS = /(^|[^a-z])(pass|pwd|auth|md5|community)$/i
// These name a place or a property of a secret, not the secret.
const HARMLESS = /(file|path|dir|name|namespace|type|mode|count|seconds|ref|version)$/

/** Whether a key, a flag or a variable of this name has a secret as its value. */
export function isSensitive(name: string): boolean {
  const plain = name.toLowerCase().replace(/[^a-z0-9]/g, '')
  return (WORDS.test(plain) && !HARMLESS.test(plain)) || ENDINGS.test(name)
}

/** Whether a word is no word of a language: it has digits, signs, or capitals within. */
export function looksSecret(word: string): boolean {
  return /\d|[a-z][A-Z]|[^\w\s.,:;'"()/-]/.test(word) && word !== REMOVED
}
