import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { forget, readSubnetEnv, remembered, writeSubnetEnv } from '../../../agent/node/files.ts'
import { installNetwork, uninstall } from '../../../agent/node/install.ts'
import { open as openFile } from '../../../agent/store/file/index.ts'
import { encode } from '../../../lib/cni/versions.ts'
import { listen, plain } from '../../../lib/os/http.ts'
import { holderOf, lastReserved, readAll } from '../../../lib/pools/reservations.ts'
import { readResolv } from '../../../lib/pools/resolv.ts'
import { networkOf } from '../../../lib/text/cidr.ts'
import { parseSubnetEnv } from '../../../lib/text/subnet-env.ts'
import { draft } from '../../support/suites/leases.ts'
import { exchanged } from '../exchange.ts'
import type { Target } from '../target.ts'
import { textOf } from './agent.ts'

const DIR = '/run/fuzz/node'

/**
 * Files of a node that others write, or that a crash or a disk may have spoiled, and requests to the agent's status
 * server.
 */
export const NODE: readonly Target[] = [
  {
    name: 'subnet.env',
    feed({ file }) {
      fresh({ 'subnet.env': file })
      const { network, subnet } = readSubnetEnv(`${DIR}/subnet.env`)
      JSON.stringify([network, subnet])
      const { networks, subnets, mtu } = parseSubnetEnv(textOf(file), '/run/flannel/subnet.env')
      return networks.length > 0 && subnets.length > 0 && mtu >= 0 && mtu <= 65_535
        ? []
        : [`it is read as ${JSON.stringify([networks, subnets, mtu])}`]
    },
  },
  {
    name: 'resolv.conf',
    feed({ file }) {
      fresh({ 'resolv.conf': file })
      encode({ dns: readResolv(`${DIR}/resolv.conf`) }, '1.1.0')
      return undefined
    },
  },
  {
    name: 'reservations',
    feed({ name, file, last }) {
      const path = named(name)
      fresh({ [path]: file, '10.1.0.9': file, 'last_reserved_ip.0': last })
      const place = { dir: DIR, own: DIR }
      const all = [...readAll(place)]
      const holder = holderOf(place, '10.1.0.9')
      const next = lastReserved(place, 0)
      return [...all.map(([, one]) => one), ...(holder ? [holder] : [])].some(
        ({ containerId, ifname }) => containerId === '' || /\n/.test(containerId + ifname),
      ) || next === ''
        ? [`it is read as ${JSON.stringify([all, next]).slice(0, 500)}`]
        : []
    },
  },
  {
    name: 'agent state',
    feed({ lease, installed, conflist }) {
      fresh({
        'lease.json': lease,
        'installed.json': installed,
        'net.d/10-flannel.conflist': conflist,
        'net.d/05-other.conf': conflist,
      })
      const before = remembered(DIR, 'node-a')
      if (before) writeSubnetEnv(`${DIR}/subnet.env`, before)
      const { subnet } = readSubnetEnv(`${DIR}/subnet.env`)
      const strange = (['v4', 'v6'] as const).filter(
        (family) =>
          before?.network[family] && before.subnet[family] && subnet[family] !== networkOf(before.subnet[family]),
      )
      forget(DIR, 'node-a', `${DIR}/subnet.env`)
      const places = { binDir: `${DIR}/bin`, confDir: `${DIR}/net.d`, stateDir: DIR }
      installNetwork(places, '/run/flannel/subnet.env')
      uninstall(places)
      return strange.map((family) => `${family} is ${subnet[family]} after ${before?.subnet[family]}`)
    },
  },
  {
    name: 'file store',
    async feed({ config, key, value, node, record }) {
      fresh({ config, [`subnets/${named(key)}`]: value, [`nodes/${named(node)}`]: record, 'nodes/node-a': record })
      const [store, stop] = [openFile({ dir: DIR }), new AbortController()]
      try {
        const conf = await store.config(AbortSignal.timeout(2000))
        await store.claim(draft('node-a', 1), conf, stop.signal)
        for await (const { leases } of store.leases(stop.signal)) {
          if (!leases.some((one) => one.node === 'node-a')) return ['its own lease is not among the leases']
          break
        }
        await store.release('node-a')
        return []
      } finally {
        stop.abort()
        await store.close()
      }
    },
  },
  {
    name: 'http',
    async feed({ request }) {
      rmSync(`${DIR}.sock`, { force: true })
      const server = listen({ unix: `${DIR}.sock` }, ({ path }) => plain(path === '/' ? 200 : 404, 'it answers'))
      const text = (request ?? Buffer.of()).toString('latin1')
      try {
        const answer = await exchanged(
          `${DIR}.sock`,
          request ?? Buffer.of(),
          /\r?\n\r?\n/.test(text) || text.length > 8192,
        )
        const good = await exchanged(`${DIR}.sock`, Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'))
        const wrong =
          answer === '' || /^HTTP\/1\.1 (200|400|404|431|503) [\w ]+\r\n/.test(answer)
            ? []
            : [`it answers ${JSON.stringify(answer.slice(0, 300))}`]
        return good.startsWith('HTTP/1.1 200 ')
          ? wrong
          : [...wrong, `afterwards it answers ${JSON.stringify(good.slice(0, 300))}`]
      } finally {
        server.stop()
      }
    },
  },
]

function fresh(files: Readonly<Record<string, Buffer | undefined>>): void {
  rmSync(DIR, { recursive: true, force: true })
  for (const dir of ['bin', 'net.d', 'subnets', 'nodes']) mkdirSync(`${DIR}/${dir}`, { recursive: true })
  for (const [name, text] of Object.entries(files)) writeFileSync(`${DIR}/${name}`, text ?? '')
}

/** A name that the file system takes. */
export function named(name: Buffer | undefined): string {
  const text = textOf(name).replace(/[/\0]/g, '_')
  return text === '' || text === '.' || text === '..' || Buffer.byteLength(text) > 255 ? '_' : text
}
