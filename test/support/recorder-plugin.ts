import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Host } from '../../lib/runtime/invoke.ts'
import { type NetworkList, parseNetwork } from '../../lib/runtime/network-list.ts'
import type { RuntimeConf } from '../../lib/runtime/requests.ts'
import { parse } from '../../lib/text/values.ts'

/**
 * A plugin that writes down each call, answers what the test put beside it, and exits with the status the test put
 * there.
 */
export const RECORDER = `#!/bin/sh
me=$0.$CNI_COMMAND
cat >$me.stdin
echo "$CNI_COMMAND \${0##*/} $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS" >>\${0%/*}/log
[ ! -e $me.said ] || cat $me.said >&2
[ ! -e $me.answer ] || cat $me.answer
[ ! -e $me.status ] || exit "$(cat $me.status)"
`
const interfaces = [{ name: 'eth0', sandbox: '/run/netns/pod' }]
/** What the recorders `one` and `two` answer to ADD. */
export const ADDED = {
  one: { cniVersion: '1.0.0', interfaces },
  two: { cniVersion: '1.0.0', interfaces, ips: [{ address: '10.1.0.2/24', interface: 0 }], futureKey: { kept: true } },
}

/** A runtime with the recorders `one`, `two` and `three` as its plugins. */
export interface Room {
  readonly dir: string
  readonly host: Host & { readonly cacheDir: string }
  /** What the runtime said through `host.warn`. */
  readonly warned: string[]
  put(name: string, script: string): void
  answer(name: string, command: string, said: object, status?: number): void
  /** What a recorder last got for a command. */
  // biome-ignore lint/suspicious/noExplicitAny: a configuration, looked at key by key in assertions
  stdin(name: string, command: string): any
  /** `COMMAND plugin`, and with `whole` id, ifname, netns and args, in the order of the calls. */
  calls(part?: 'whole' | 'verbs'): string[]
  forget(): void
  remove(): void
}

/** Makes a room below the temporary directory; `remove` it after the test. */
export function makeRoom(): Room {
  const dir = mkdtempSync(join(tmpdir(), 'runtime-'))
  const warned: string[] = []
  const host = {
    path: [`${dir}/none`, `${dir}/bin`],
    cacheDir: `${dir}/cache`,
    warn: (text: string) => void warned.push(text),
  }
  mkdirSync(`${dir}/bin`)
  function put(name: string, script: string): void {
    rmSync(`${dir}/bin/${name}`, { force: true })
    writeFileSync(`${dir}/bin/${name}`, script, { mode: 0o755 })
  }
  function answer(name: string, command: string, said: object, status = 0): void {
    writeFileSync(`${dir}/bin/${name}.${command}.answer`, JSON.stringify(said))
    if (status > 0) writeFileSync(`${dir}/bin/${name}.${command}.status`, String(status))
  }
  function calls(part: 'whole' | 'verbs' = 'whole'): string[] {
    const lines = existsSync(`${dir}/bin/log`) ? readFileSync(`${dir}/bin/log`, 'utf8').split('\n').filter(Boolean) : []
    return lines.map((line) =>
      part === 'verbs' ? line.split(' ').slice(0, 2).join(' ') : line.replace(/ +/g, ' ').trim(),
    )
  }
  for (const name of ['one', 'two', 'three']) put(name, RECORDER)
  answer('one', 'ADD', ADDED.one)
  answer('two', 'ADD', ADDED.two)
  const stdin = (name: string, command: string) =>
    JSON.parse(readFileSync(`${dir}/bin/${name}.${command}.stdin`, 'utf8'))
  return {
    dir,
    host,
    warned,
    put,
    answer,
    stdin,
    calls,
    forget: () => rmSync(`${dir}/bin/log`, { force: true }),
    remove: () => rmSync(dir, { recursive: true }),
  }
}

/** The network `net` of the recorders `one` (with a key of its own) and `two`, 1.0.0, unless said otherwise. */
export function list({
  plugins = ['one', 'two'],
  ...rest
}: {
  plugins?: (string | object)[]
  [key: string]: unknown
} = {}): NetworkList {
  const objects = plugins.map((one) =>
    one === 'one' ? { type: one, key: 1 } : typeof one === 'string' ? { type: one } : one,
  )
  return parseNetwork(JSON.stringify({ cniVersion: '1.0.0', name: 'net', plugins: objects, ...rest }), 'the list')
}

/** The attachment of `c1` as `eth0`, unless said otherwise. */
export function at(more: Partial<RuntimeConf> = {}): RuntimeConf {
  return {
    containerId: parse.containerId('c1'),
    ifname: parse.ifname('eth0'),
    netns: parse.netns('/run/netns/pod'),
    ...more,
  }
}
