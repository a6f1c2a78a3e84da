import { createHash } from 'node:crypto'

/**
 * How long a round of `slowness` takes on two processors at rest, in milliseconds. The least of 250 rounds, measured in
 * five runs of 50 on two processors (AMD EPYC). They were not at rest, and a round without other work beside it is the
 * shortest. The least of each run was 91 to 106.
 */
const AT_REST_MS = 90
const ROUNDS = 5
/** A machine that seems slower than this has something else to mend. */
const MOST = 8

/**
 * How many times as long as at rest a fixed piece of work takes now, from 1 to 8 in tenths. The work is digests of 64 MB
 * and 60 processes, one after another; the median of five rounds counts.
 */
export function slowness(): number {
  const times = Array.from({ length: ROUNDS }, round).sort((a, b) => a - b)
  const factor = (times[Math.floor(ROUNDS / 2)] as number) / AT_REST_MS
  return Math.round(Math.min(MOST, Math.max(1, factor)) * 10) / 10
}

function round(): number {
  const began = performance.now()
  const [hash, block] = [createHash('sha256'), Buffer.alloc(1 << 20)]
  for (let i = 0; i < 64; i++) hash.update(block)
  hash.digest()
  for (let i = 0; i < 60; i++) Bun.spawnSync(['/bin/true'])
  return performance.now() - began
}
