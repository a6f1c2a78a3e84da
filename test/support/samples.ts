import { readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { Glob } from 'bun'
import type { Row } from './harness.ts'

const CONF = join(import.meta.dir, '../../conf')

/** A network of conf/, as a runtime that reads its folder sees it. */
export interface Sample {
  /** Below conf/. */
  readonly file: string
  /** The folder it lies in. */
  readonly dir: string
  readonly name: string
  readonly cniVersion: string
  readonly plugins: readonly Row[]
  /** The type of the first plugin. */
  readonly type: string
  /** The type of its pool; minicni has host-local without naming it. */
  readonly pool: string
  /**
   * What the runtime gives a pod of these numbers, from 1, so that no two want the same. It gives addresses where the
   * pool keeps none, and a host port where a list can have one.
   */
  capabilities(nth: number): Row
}

// conf/chart and conf/monitoring have no networks: their JSON is a schema, and dashboards.
const all: readonly Sample[] = [...new Glob('**/*.{conf,conflist,json}').scanSync({ cwd: CONF })]
  .filter(isNetwork)
  .sort()
  .map(read)
/** Every file below conf/ that is a network; one that is added there is run by every test that walks these. */
export const SAMPLES = all.filter(({ type, plugins }) => type !== 'host-device' && !plugins.some(isAdmitting))
/** Those that have a device of the node for one container at a time. */
export const LENDING = all.filter(({ type }) => type === 'host-device')
/** Those whose pods an agent admits: it has to run (test/plugins/policy.test.ts). */
export const ADMITTING = all.filter(({ plugins }) => plugins.some(isAdmitting))

/**
 * The files below conf/ that hold JSON and are no part of the chart, whatever they are called; what begins with two
 * braces is a template of it.
 */
export function jsonFiles(): string[] {
  return [...new Glob('**/*').scanSync({ cwd: CONF })]
    .filter((file) => isNetwork(file) && /^\s*\{(?!\{)/.test(readFileSync(join(CONF, file), 'utf8')))
    .sort()
}

function isAdmitting({ type }: Row): boolean {
  return type === 'policy'
}

function isNetwork(file: string): boolean {
  return !/^(chart|monitoring)\//.test(file)
}

function read(file: string): Sample {
  const {
    name,
    cniVersions = [],
    cniVersion = cniVersions.at(-1),
    ...conf
  } = JSON.parse(readFileSync(join(CONF, file), 'utf8'))
  const plugins: readonly Row[] = conf.plugins ?? [conf]
  const type: string = plugins[0]?.['type']
  const pool: string = type === 'minicni' || type === 'flannel' ? 'host-local' : (plugins[0]?.['ipam']?.type ?? '')
  const ports = plugins.some(({ capabilities }) => capabilities?.portMappings === true)
  function capabilities(nth: number): Row {
    const addresses: Row[] = plugins[0]?.['ipam']?.addresses ?? []
    return {
      // The last digit goes up by one from pod to pod.
      ...(pool === 'static' &&
        nth > 1 && {
          ips: addresses.map(({ address }) =>
            address.replace(/\d(?=\/)/, (digit: string) => `${Number(digit) + nth - 1}`),
          ),
        }),
      ...(ports && { portMappings: [{ hostPort: 8080 + nth, containerPort: 80, protocol: 'tcp' }] }),
    }
  }
  return {
    file: join(dirname(file), basename(file)),
    dir: join(CONF, dirname(file)),
    name,
    cniVersion: cniVersions.at(-1) ?? cniVersion,
    plugins,
    type,
    pool,
    capabilities,
  }
}
