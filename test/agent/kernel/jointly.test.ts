// lane: quick
// Tests agent/kernel/jointly.ts.
import assert from 'node:assert/strict'
import { jointly } from '../../../agent/kernel/jointly.ts'
import type { Output, Run } from '../../../lib/os/run.ts'

const NFT = ['nft', '-f', '-']

/** A run that answers everything with success, and what it was asked. */
function recorder(answer: () => Promise<Output> = async () => ({ status: 0, stdout: '', stderr: '' })): {
  run: Run
  asked: string[]
} {
  const asked: string[] = []
  const run: Run = async (argv, stdin) => {
    asked.push(`${argv.join(' ')}: ${stdin}`)
    return answer()
  }
  return { run, asked }
}

describe('works that share a transaction', () => {
  it('the first transactions of all works are one, in the order in which they come; all else runs by itself', async () => {
    const { run, asked } = recorder()
    const results = await jointly(run, [
      async (own) => {
        await own(['conntrack', '-L'], '')
        await own(NFT, 'a\n')
        await own(NFT, 'c\n')
        return 1
      },
      async (own) => {
        await own(NFT, 'b\n')
        return 2
      },
      async () => 3,
    ])
    assert.deepEqual(results, [1, 2, 3])
    assert.deepEqual(asked, ['conntrack -L: ', 'nft -f -: b\na\n', 'nft -f -: c\n'])
  })

  it('without a transaction nothing runs', async () => {
    const { run, asked } = recorder()
    assert.deepEqual(await jointly(run, [async () => 1, async () => 2]), [1, 2])
    assert.deepEqual(await jointly(run, []), [])
    assert.deepEqual(asked, [])
  })

  it('a work that fails before its transaction holds back no other; nft that fails fails all that are in it', async () => {
    const { run, asked } = recorder()
    await assert.rejects(jointly(run, [() => Promise.reject(new Error('no')), (own) => own(NFT, 'b\n')]), /no/)
    assert.deepEqual(asked, ['nft -f -: b\n'])
    const refused = recorder(async () => ({ status: 1, stdout: '', stderr: 'bad' }))
    const works = ['a\n', 'b\n'].map((text) => (own: Run) => own(NFT, text))
    assert.deepEqual(
      (await jointly(refused.run, works)).map(({ stderr }) => stderr),
      ['bad', 'bad'],
    )
    const broken = recorder(() => Promise.reject(new Error('cannot start')))
    await assert.rejects(jointly(broken.run, works), /cannot start/)
  })
})
