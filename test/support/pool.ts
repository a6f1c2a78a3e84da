import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Answer, type Call, type Namespace, plugin, type Row } from './harness.ts'

/** Range sets of two IPv4 ranges and of one IPv6 range. */
export const two = {
  ranges: [
    [{ subnet: '10.1.0.0/29' }, { subnet: '10.2.0.0/29', rangeStart: '10.2.0.4', gateway: '10.2.0.1' }],
    [{ subnet: 'fd00::/64' }],
  ],
}

/** A network's pool in a directory of its own, called as a runtime calls it. */
export function pool(node: Namespace, ipam: object, top: object = {}) {
  const dataDir = mkdtempSync('/run/ipam-')
  const conf: Row = {
    cniVersion: '1.0.0',
    name: 'net',
    type: 'bridge',
    ipam: { type: 'host-local', dataDir, ...ipam },
    ...top,
  }
  const dir = join(dataDir, 'net')
  const call = (command: string, containerId: string, more: Partial<Call> = {}): Promise<Answer> =>
    plugin('host-local', { command, containerId, netns: '/absent', conf, ...more }, node)
  return {
    conf,
    dataDir,
    dir,
    call,
    /** ADD that has to work: its addresses. */
    async add(id: string, more?: Partial<Call>): Promise<string[]> {
      const { status, stdout, stderr, result } = await call('ADD', id, more)
      assert.deepEqual({ status, stderr }, { status: 0, stderr: '' }, stdout)
      return addresses(result)
    },
    /** Any other verb that has to work, and has nothing to say. */
    async does(command: string, id: string, more?: Partial<Call>): Promise<void> {
      const { status, stdout, stderr } = await call(command, id, more)
      assert.deepEqual({ status, stdout, stderr }, { status: 0, stdout: '', stderr: '' })
    },
    async fails(command: string, id: string, code: number, msg: RegExp, more?: Partial<Call>): Promise<void> {
      const { status, error, stdout } = await call(command, id, more)
      assert.equal(status, 1, stdout)
      assert.equal(error.code, code, stdout)
      assert.match(error.msg, msg)
    },
    files: (): Record<string, string> =>
      Object.fromEntries(read(dir).map((name) => [name, readFileSync(join(dir, name), 'utf8')])),
    /** Everything but the lock. */
    left: (): string[] => read(dir),
    reserved: (): string[] => read(dir).filter((name) => !name.startsWith('last_')),
    /** A reservation as someone else leaves it. */
    put(name: string, text: string): void {
      mkdirSync(dir, { recursive: true })
      writeFileSync(join(dir, name), text)
    },
  }
}

/** The addresses of a result of any version, without prefix lengths. */
export function addresses({ ips, ip4, ip6 }: Row): string[] {
  return (ips ?? [ip4, ip6].filter(Boolean)).map((ip: Row) => (ip['address'] ?? ip['ip']).split('/')[0])
}

function read(dir: string): string[] {
  return existsSync(dir)
    ? readdirSync(dir)
        .filter((name) => name !== 'lock')
        .sort()
    : []
}
