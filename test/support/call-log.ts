import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { type Row, until } from './harness.ts'

const DIST = join(import.meta.dir, '../../dist')

/** A call as a runtime made it. */
export interface Seen {
  readonly type: string
  readonly command: string
  readonly containerId: string
  readonly netns: string
  /** What came on standard input. */
  readonly conf: Row
}
/** A call that waits. */
export interface Held {
  /** Resolves when it is there. */
  reached(): Promise<void>
  /** Lets it go on, and resolves at its end, even when nobody waits for it. */
  release(): Promise<void>
}
/** A folder of plugins for a runtime: each writes its call down and is then dist/'s own. */
export interface Tap {
  readonly bin: string
  /** In their order; of those plugins alone that the tap was made for. */
  calls(): Seen[]
  /** The next call of this kind waits: before the plugin begins, or when it has done all and before its answer. */
  hold(type: string, command: string, when: 'before' | 'after'): Held
}

/** Makes one that taps these plugins; host-local is what it always is. */
export function tapped(types: readonly string[]): Tap {
  const dir = mkdtempSync('/run/tap-')
  const [bin, log] = [join(dir, 'bin'), join(dir, 'calls')]
  for (const one of [bin, log]) mkdirSync(one)
  for (const type of types) writeFileSync(join(bin, type), script(dir, type), { mode: 0o755 })
  symlinkSync(join(DIST, 'host-local'), join(bin, 'host-local'))
  function read(name: string): Seen {
    const [, type = '', command = ''] = name.split('.')
    const [containerId = '', netns = '', ...conf] = readFileSync(join(log, name), 'utf8').split('\n')
    return { type, command, containerId, netns, conf: JSON.parse(conf.join('\n')) }
  }
  return {
    bin,
    calls: () =>
      readdirSync(log)
        .filter((name) => name.endsWith('.in'))
        .sort()
        .map(read),
    hold(type, command, when) {
      const gate = join(dir, `${when}.${type}.${command}`)
      writeFileSync(gate, '')
      return {
        reached: async () => void (await until(() => existsSync(`${gate}.reached`), 20_000)),
        async release() {
          rmSync(gate)
          await until(() => existsSync(`${gate}.ended`), 20_000)
        },
      }
    },
  }
}

function script(dir: string, type: string): string {
  return `#!/bin/sh
call=${dir}/calls/$(date +%s%N).${type}.$CNI_COMMAND
{ printf '%s\\n%s\\n' "$CNI_CONTAINERID" "$CNI_NETNS"; cat; } >$call.draft
mv $call.draft $call.in
gate() {
  held=${dir}/$1.${type}.$CNI_COMMAND
  [ ! -e $held ] || { ended=$held.ended; : >$held.reached; while [ -e $held ]; do sleep 0.02; done; }
}
gate before
tail -n +3 $call.in | ${DIST}/${type} >$call.out
status=$?
gate after
cat $call.out
[ -z "$ended" ] || : >$ended
exit $status
`
}
