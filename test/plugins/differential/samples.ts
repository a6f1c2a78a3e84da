import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { masterOf } from '../../support/kinds.ts'
import type { Lane } from './lanes.ts'
import type { Conf, Scene } from './list.ts'

const CONF = join(import.meta.dir, '../../../conf')
const WAYS = ['live', 'empty', 'gone'] as const

/** A file in conf/ that holds a network. */
export interface Sample {
  readonly file: string
  readonly list: Scene['list']
}

/** Every network in conf/, however deep it lies: JSON with plugins, or one plugin. */
export function samples(): Sample[] {
  return readdirSync(CONF, { recursive: true, encoding: 'utf8' })
    .sort()
    .flatMap((file) => {
      if (!/\.(conf|conflist|json)$/.test(file)) return []
      const { name, cniVersion, plugins, ...rest } = JSON.parse(readFileSync(join(CONF, file), 'utf8'))
      const confs: Conf[] = plugins ?? ('type' in rest ? [rest] : [])
      // One device of the node: test/plugins/host-device/reference.test.ts has it.
      return confs.length > 0 && confs[0]?.type !== 'host-device'
        ? [{ file, list: { name, cniVersion, plugins: confs } }]
        : []
    })
}

/**
 * The lives of a sample: DEL in three ways, and host ports where it has them. When the reference does not speak the
 * sample's version, they use the reference's newest.
 */
export function scenesOf({ file, list }: Sample, { speaks }: Lane): Scene[] {
  const { cniVersion = '0.1.0' } = list
  const version = speaks.includes(cniVersion) ? cniVersion : (speaks.at(-1) as string)
  const ports = (from: number) => ({
    portMappings: [
      { hostPort: from, containerPort: 80, protocol: 'tcp' },
      { hostPort: from + 1, containerPort: 53, protocol: 'udp' },
    ],
  })
  return WAYS.map((del) => ({
    name: `conf/${file}${version === cniVersion ? '' : ` in CNI ${version}`}, DEL with the namespace ${{ live: 'there', empty: 'not named', gone: 'gone' }[del]}`,
    list: { ...list, cniVersion: version },
    ...(masterOf(list.plugins) && { before: masterOf(list.plugins) }),
    caps: { a: ports(8080), b: ports(9080) },
    del,
  }))
}

/** The plugins that a sample needs. */
export function typesOf({ list }: Sample): string[] {
  return list.plugins.flatMap(({ type, ipam }) => [type, (ipam as Conf | undefined)?.type ?? []].flat())
}
