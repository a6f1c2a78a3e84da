// lane: netns
// Tests conf.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { inNamespaces, type Namespace } from '../support/harness.ts'

const ROOT = join(import.meta.dir, '../..')

describe('conf/plumb-agent.service', () => {
  it(
    'with the rights that it leaves, links, addresses, routes, neighbours, forwarding entries, rules and settings of the network can be made, and our program runs',
    inNamespaces(['node'], async ({ node }) => {
      const unit = readFileSync(join(ROOT, 'conf/plumb-agent.service'), 'utf8')
      const [, capabilities = ''] = /^CapabilityBoundingSet=(.*)$/m.exec(unit) ?? []
      const rights = [
        'setpriv',
        `--bounding-set=-all,${capabilities.replaceAll('CAP_', '+').replaceAll(' ', ',').toLowerCase()}`,
        '--no-new-privs',
      ]
      const may = async (line: string, stdin = '') => {
        const { status, stdout, stderr } = await node.exec([...rights, ...line.split(' ')], { stdin })
        assert.equal(status, 0, `${line}: ${stdout}${stderr}`)
        return stdout
      }
      assert.match(await may('grep CapBnd /proc/self/status'), /CapBnd:\s0+3402\n/)
      await node.ip('link', 'set', 'lo', 'up')
      await may(
        'ip -batch -',
        'link add name uplink type veth peer name far\nlink set dev uplink up\naddr add 10.0.0.1/24 dev uplink\nlink add name flannel.1 type vxlan id 1 dev uplink local 10.0.0.1 dstport 8472 nolearning udpcsum\nlink set dev flannel.1 up\naddr add 10.5.1.0/32 dev flannel.1\nroute add 10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink proto 112\nneigh replace 10.5.2.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent\n',
      )
      await may('bridge -batch -', 'fdb replace 02:00:00:00:00:01 dev flannel.1 dst 10.0.0.2 self permanent\n')
      await may(
        'nft -f -',
        ['sets', 'masquerade', 'host-ports', 'firewall', 'gateways']
          .map((name) => readFileSync(join(ROOT, `lib/nft/${name}.nft`), 'utf8'))
          .join('\n'),
      )
      for (const key of ['ipv4/ip_forward', 'ipv6/conf/all/forwarding', 'ipv4/conf/uplink/rp_filter'])
        await may('tee /proc/sys/net/'.concat(key), '1')
      assert.match(await may(`${join(ROOT, 'dist/plumb')} --version`), /^plumb /)
      await reads(node, 'ip -4 route show proto 112', /10\.5\.2\.0\/24 via 10\.5\.2\.0 dev flannel\.1/)
      // The other way round: what it is not left with it may not do.
      assert.notEqual((await node.exec([...rights, 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt'])).status, 0)
    }),
  )
})

async function reads(node: Namespace, line: string, wanted: RegExp): Promise<void> {
  assert.match((await node.exec(line.split(' '))).stdout, wanted)
}
