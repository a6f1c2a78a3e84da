import * as v from 'valibot'
import { CniError, CODE, shown, ValueError } from '../text/errors.ts'
import { type Cidr, type Ip, parseIp } from '../text/ip.ts'
import { isDeep } from '../text/json.ts'
import { field, read } from '../text/shape.ts'
import type { Interface, IpConfig, Result, RouteConfig } from './result.ts'
import { supported } from './spec.ts'

// One row per spec version: the form of its results, and its commands beyond ADD, DEL and VERSION. `families`: `ip4`
// and `ip6` with one address each. `struct`: keys in the order of the spec, `dns` always present. `sorted`: keys
// sorted, empty `dns` left out.
const table = {
  '0.1.0': { form: 'families', verbs: [] },
  '0.2.0': { form: 'families', verbs: [] },
  '0.3.0': { form: 'struct', verbs: [] },
  '0.3.1': { form: 'struct', verbs: [] },
  '0.4.0': { form: 'struct', verbs: ['CHECK'] },
  '1.0.0': { form: 'sorted', verbs: ['CHECK'] },
  '1.1.0': { form: 'sorted', verbs: ['CHECK', 'GC', 'STATUS'], details: true },
} as const satisfies Record<string, Row>
interface Row {
  readonly form: 'families' | 'struct' | 'sorted'
  readonly verbs: readonly string[]
  /** Interfaces have mtu, socketPath and pciID. */
  readonly details?: true
}

/**
 * Throws CniError 1 when the version is unknown or does not have the command. CHECK exists from 0.4.0, GC and STATUS
 * from 1.1.0.
 */
export function gate(command: string, version: string): void {
  const { verbs } = row(version)
  if (!['CHECK', 'GC', 'STATUS'].includes(command) || verbs.includes(command)) return
  const first = supported.find((one) => row(one).verbs.includes(command))
  throw new CniError(
    CODE.version,
    `config version does not allow ${command}`,
    `config is ${shown(version)}, ${command} needs ${first} or later`,
  )
}

/**
 * Whether results of a version have one place for an address of each family. True for 0.1.0 and 0.2.0. False for
 * unknown ones.
 */
export function hasFamilies(version: string): boolean {
  return Object.hasOwn(table, version) && row(version).form === 'families'
}

/**
 * Compares two versions `major.minor.patch`. Returns a negative number, zero or a positive number. Throws ValueError
 * for any other text.
 */
export function compare(a: string, b: string): number {
  const [left, right] = [numbers(a), numbers(b)]
  return left.map((part, i) => part - (right[i] as number)).find((far) => far !== 0) ?? 0
}

const ESCAPED = ['<', '>', '&', '\u2028', '\u2029']

/**
 * The JSON text of a result in the form of a version. It equals the text of the reference byte for byte: 4 spaces, no
 * newline at the end. Pure. A call with the planned result gives an error before any change is made. Throws CniError 1
 * for an unknown version, 7 when 0.1.0 or 0.2.0 would have no address.
 */
export function encode(result: Result, version: string): string {
  const { form, details } = row(version)
  const dns = bare({
    nameservers: some(result.dns?.nameservers),
    domain: result.dns?.domain || undefined,
    search: some(result.dns?.search),
    options: some(result.dns?.options),
  })
  const body = form === 'families' ? families(result, version) : lists(result, form === 'struct', details === true)
  const whole = {
    cniVersion: version,
    ...body,
    dns: form === 'sorted' && Object.keys(dns).length === 0 ? undefined : dns,
  }
  const text = JSON.stringify(form === 'sorted' ? sorted(whole) : whole, null, 4)
  // Go's encoder escapes these five characters in strings. They occur nowhere else in JSON.
  if (!ESCAPED.some((char) => text.includes(char))) return text
  return text.replace(/[<>&\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/**
 * Reads a result of any version. `version` is the version of the configuration. It applies when the result has no
 * `cniVersion`. `at` is the name of the result in messages. Throws ValueError that names path and value.
 */
export function decode(raw: unknown, version: string, at = 'prevResult'): Result {
  if (isDeep(raw)) throw new ValueError(`Cannot read ${at}: it is nested too deep`)
  const inner = shape(at, versioned, raw).cniVersion || version
  const known = Object.hasOwn(table, inner)
  if (!known) throw new ValueError(`Cannot read ${at}.cniVersion ${shown(inner)}: want one of ${supported.join(', ')}`)
  if (row(inner).form !== 'families') return shape(at, current, raw)
  const { ip4, ip6, ...rest } = shape(at, early, raw)
  const found = [ip4, ip6].filter((one) => one !== undefined)
  const ips = found.map(({ ip, gateway }) => bare({ address: ip, gateway }) as IpConfig)
  const routes = found.flatMap(({ routes = [] }) => routes)
  return { ips, ...(routes.length > 0 && { routes }), ...rest }
}

function row(version: string): Row {
  if (Object.hasOwn(table, version)) return table[version as keyof typeof table]
  throw new CniError(
    CODE.version,
    'incompatible CNI versions',
    `config is ${shown(version)}, plugin supports [${supported.map((one) => `"${one}"`).join(' ')}]`,
  )
}

function numbers(version: string): number[] {
  if (!/^\d{1,9}\.\d{1,9}\.\d{1,9}$/.test(version))
    throw new ValueError(`${shown(version)}: want a version such as 1.1.0`)
  return version.split('.').map(Number)
}

// The first address of each family, and the routes of that family (CNI spec 0.2.0 "Result").
function families({ ips = [], routes = [] }: Result, version: string): object {
  if (ips.length === 0)
    throw new CniError(
      CODE.config,
      `Cannot answer as CNI ${version} asks: the result has no address`,
      'this version can only show addresses; set "cniVersion" to 0.3.0 or later',
    )
  const family = (six: boolean) => {
    const first = ips.find(({ address }) => isSix(address) === six)
    const own = routes.filter(({ dst }) => isSix(dst) === six).map(({ dst, gw }) => ({ dst, gw }))
    return first && { ip: first.address, gateway: first.gateway, routes: some(own) }
  }
  return { ip4: family(false), ip6: family(true) }
}

function lists({ interfaces = [], ips = [], routes = [] }: Result, withFamily: boolean, details: boolean): object {
  const link = ({ name, mac, mtu, sandbox, socketPath, pciID }: Interface) => ({
    name,
    mac: mac || undefined,
    ...(details && { mtu: mtu || undefined }),
    sandbox: sandbox || undefined,
    ...(details && { socketPath: socketPath || undefined, pciID: pciID || undefined }),
  })
  const ip = ({ interface: index, address, gateway }: IpConfig) => ({
    ...(withFamily && { version: isSix(address) ? '6' : '4' }),
    interface: index,
    address,
    gateway,
  })
  // The reference leaves out zero values, except a table or scope of zero.
  const route = ({ dst, gw, mtu, advmss, priority, table, scope }: RouteConfig) => ({
    dst,
    gw,
    mtu: mtu || undefined,
    advmss: advmss || undefined,
    priority: priority || undefined,
    table,
    scope,
  })
  return { interfaces: some(interfaces.map(link)), ips: some(ips.map(ip)), routes: some(routes.map(route)) }
}

function isSix(cidr: Cidr | Ip): boolean {
  return cidr.includes(':')
}

function some<T>(list: readonly T[] | undefined): readonly T[] | undefined {
  return list && list.length > 0 ? list : undefined
}

function bare<T extends object>(given: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as never
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => [key, sorted(one)] as const),
  )
}

function shape<T>(at: string, inner: v.GenericSchema<unknown, T>, raw: unknown): T {
  return (read(v.object({ [at]: inner }), { [at]: raw }).value as Record<string, T>)[at] as T
}

// Go reads "" as no address, and other CNI implementations write it.
const gateway = field.filled(parseIp)
// An address may have any length, up to 32 bytes (InfiniBand has 20). The text is kept as written.
const hardware = v.exactOptional(
  field.by((text) => must(text, isHardware, 'a hardware address such as 02:00:0a:f4:00:02')),
)
const size = v.exactOptional(field.int(0, 2 ** 32 - 1))
const texts = v.exactOptional(v.array(field.text))
const text = v.exactOptional(field.text)
const dns = v.exactOptional(v.object({ nameservers: texts, domain: text, search: texts, options: texts }))
const route = v.pipe(
  v.object({ dst: field.cidr, gw: gateway, mtu: size, advmss: size, priority: size, table: size, scope: size }),
  v.transform((one): RouteConfig => bare(one) as RouteConfig),
)
const ip = v.pipe(
  v.object({ version: text, interface: v.exactOptional(field.int(0, 2 ** 31 - 1)), address: field.cidr, gateway }),
  v.transform(({ version: _, ...one }): IpConfig => bare(one) as IpConfig),
)
const link = v.object({ name: field.text, mac: hardware, mtu: size, sandbox: text, socketPath: text, pciID: text })
const ip4or6 = v.exactOptional(v.object({ ip: field.cidr, gateway, routes: v.exactOptional(v.array(route)) }))

const versioned = v.looseObject({ cniVersion: text })
const early = v.pipe(v.object({ cniVersion: text, ip4: ip4or6, ip6: ip4or6, dns }), v.transform(body))
const current = v.pipe(
  v.object({
    cniVersion: text,
    interfaces: v.exactOptional(v.array(link)),
    ips: v.exactOptional(v.array(ip)),
    routes: v.exactOptional(v.array(route)),
    dns,
  }),
  v.transform(body),
)

function body<T extends { cniVersion?: string; dns?: object }>({
  cniVersion: _,
  dns,
  ...rest
}: T): Omit<T, 'cniVersion' | 'dns'> & { dns?: NonNullable<T['dns']> } {
  return dns && Object.keys(dns).length > 0 ? { ...rest, dns } : rest
}

// Up to 32 pairs of hexadecimal digits.
function isHardware(text: string): boolean {
  if (text.length > 95 || (text !== '' && text.length % 3 !== 2)) return false
  for (let at = 0; at < text.length; at++)
    if (!(at % 3 === 2 ? ':-' : '0123456789abcdefABCDEF').includes(text[at] as string)) return false
  return true
}

function must(value: unknown, test: (text: string) => boolean, want: string): string {
  if (typeof value !== 'string' || !test(value)) throw new ValueError(`${shown(value)}: want ${want}`)
  return value
}
