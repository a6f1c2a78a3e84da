import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { cnitool } from '../../scripts/peers.ts'
import { ENV, writeEnv } from './flannel.ts'
import { type Finished, inNamespaces, type Namespace, until } from './harness.ts'
import type { Sample } from './samples.ts'

/** What `left` gives of a network without attachments. */
export const NOTHING = { cached: [], reserved: [], ports: [] }
export const DIST = join(import.meta.dir, '../../dist')

/** The runtime of a node. */
export interface Tool {
  /** cnitool with these words, or another program in its place. */
  call(argv: readonly string[], program?: readonly string[]): Promise<Finished>
  /** Its stdout, when it ends well and says nothing on stderr. */
  works(argv: readonly string[], program?: readonly string[]): Promise<string>
}

/** cnitool on a node, with plugins from the directories of `path` and networks from `confDir`. */
export function on(node: Namespace, confDir: string, path = DIST, env: Readonly<Record<string, string>> = {}): Tool {
  const call: Tool['call'] = (argv, program = [cnitool()?.path ?? '']) =>
    node.exec([...program, ...argv], { env: { NETCONFPATH: confDir, CNI_PATH: path, ...env } })
  return {
    call,
    async works(argv, program) {
      const { status, stdout, stderr } = await call(argv, program)
      // The reference's sbr tells of every route that it moves.
      assert.deepEqual([status, path === DIST ? stderr : ''], [0, ''], `${argv.join(' ')}: ${stdout}${stderr}`)
      return stdout
    },
  }
}

/** As inNamespaces, with nothing remembered and nothing reserved from an earlier test. */
export function onFreshNode<N extends string>(
  names: readonly N[],
  work: (ns: Record<N, Namespace>, test: Mocha.Context) => Promise<void>,
): (this: Mocha.Context) => Promise<void> {
  return inNamespaces(names, async (ns, test) => {
    // cnitool knows one cache only. In the sandbox /var/lib is written to memory.
    assert.equal(
      process.env['PLUMB_SANDBOX'],
      '1',
      'This test empties /var/lib/cni: run it with `bun test/run.ts FILE`',
    )
    for (const dir of ['/var/lib/cni', '/run/cni']) rmSync(dir, { recursive: true, force: true })
    // As an agent that masquerades itself has it.
    writeEnv('/run/flannel/subnet.env', ENV.dual.replace('IPMASQ=false', 'IPMASQ=true'))
    await work(ns, test)
  })
}

/** A directory of networks that holds this one. */
export function folder(conf: { readonly name: string; readonly [key: string]: unknown }): string {
  const dir = mkdtempSync('/run/conf-')
  writeFileSync(join(dir, `${conf.name}.conflist`), JSON.stringify(conf))
  return dir
}

/**
 * What attachments have on a node: files of the cache, addresses reserved in the default pool of a network, host ends
 * of veth pairs.
 */
export async function left(
  node: Namespace,
  network: string,
): Promise<{ cached: string[]; reserved: string[]; ports: string[] }> {
  return {
    cached: files('/var/lib/cni/results'),
    reserved: files(`/var/lib/cni/networks/${network}`).filter((file) => /^[\da-f.:]+$/.test(file)),
    ports: (await node.json('link')).map(({ ifname }) => ifname).filter((name) => name.startsWith('veth')),
  }
}

/**
 * Every verb of cnitool on a sample's network, where its version has it, for a pod that is alone there: whichever verb
 * removes it leaves nothing.
 */
export async function everyVerb(
  { dir, name, cniVersion, capabilities }: Sample,
  node: Namespace,
  pod: Namespace,
): Promise<void> {
  const { call } = on(node, dir, DIST, { CAP_ARGS: JSON.stringify(capabilities(1)) })
  const has13 = !cnitool()?.version.startsWith('1.1.')
  const removals = [['del', 'del'], ...(has13 ? [['gc']] : [])]
  for (const removal of removals) {
    for (const verb of ['add', ...(cniVersion >= '0.4.0' ? ['check'] : []), ...(has13 ? ['status'] : []), ...removal]) {
      const { status, stdout, stderr } = await call([verb, name, pod.path])
      assert.equal(status, 0, `${verb}: ${stdout}${stderr}`)
      // Its gc names no attachment that is in use, and plumb says what it makes of that.
      if (verb !== 'gc') assert.equal(stderr, '', verb)
      if (verb === 'add') assert.equal((await left(node, name)).cached.length, 1)
    }
    assert.deepEqual(await left(node, name), NOTHING, `after ${removal[0]}`)
  }
}

/** What an HTTP server on port 80 of a pod answers to who asks at an address, once it does: the client it sees. */
export async function page(from: Namespace, pod: Namespace, authority: string): Promise<string> {
  return serving(pod, () => until(() => asked(from, authority)))
}

/** Runs an HTTP server on port 80 of a pod for as long as `work` takes. */
export async function serving<T>(pod: Namespace, work: () => Promise<T>): Promise<T> {
  const server = Bun.spawn(['nsenter', `--net=${pod.path}`, '--', process.execPath, '-e', SERVER])
  try {
    return await work()
  } finally {
    server.kill('SIGKILL')
    await server.exited
  }
}

/** What such a server answers now; empty when nothing does within a second. */
export async function asked(from: Namespace, authority: string): Promise<string> {
  return (await from.exec([process.execPath, '-e', CLIENT, `http://${authority}/`])).stdout
}

const SERVER = `Bun.serve({ hostname: '0.0.0.0', port: 80, fetch: (request, server) => new Response('for ' + server.requestIP(request).address) })`
const CLIENT = `process.stdout.write(await (await fetch(process.argv.at(-1), { signal: AbortSignal.timeout(1000) })).text())`

function files(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir).sort() : []
}
