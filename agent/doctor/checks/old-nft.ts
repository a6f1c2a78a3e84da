import { defineCheck } from '../check.ts'
import { NotRead } from '../facts/facts.ts'

const UPDATE = ['apt-get install -y nftables || dnf install -y nftables']

/** nft is too old for plumb, or cannot read rules that a newer program has made. */
export const check = defineCheck({
  code: 'DR16',
  title: 'nft is too old',
  severity: 'error',
  reads: ['nft'],
  detect({ nft: { version, failure, tables } }) {
    if (version !== undefined && Number(version.split('.')[0]) < 1) {
      const what = `nft has the version ${version}; want 1.0 or later`
      return [{ what, effect: 'plumb cannot make its rules', commands: UPDATE }]
    }
    if (failure === undefined) return []
    // Without root, nothing is read.
    if (/not permitted|Permission denied/.test(failure)) throw new NotRead(failure)
    const of = tables.length === 0 ? 'the rules of this node' : `the tables ${tables.join(', ')}`
    const what = `nft ${version ?? ''} cannot read ${of} (${failure})`
    const effect = 'nobody sees whether these rules drop packets of pods; a newer nft reads them'
    return [{ what, effect, commands: UPDATE }]
  },
})
