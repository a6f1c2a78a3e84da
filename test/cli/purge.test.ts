// lane: netns
// Tests cli/purge.ts.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { inNamespaces, type Namespace, snapshot, until } from '../support/harness.ts'
import { fileStore, inCluster, type Node, subnetEnv } from '../support/nodes.ts'

const PLUMB = join(import.meta.dir, '../../dist/plumb')
const INSTALLED = '/opt/cni/bin/plumb'
const NETWORK = {
  cniVersion: '1.0.0',
  name: 'pods',
  plugins: [
    {
      type: 'bridge',
      bridge: 'cni7',
      isDefaultGateway: true,
      ipMasq: true,
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.77.0.0/24' }]] },
    },
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'firewall' },
    { type: 'tuning', sysctl: { 'net.ipv4.conf.eth0.arp_notify': '0' } },
  ],
}
// The folders of a node, empty and its own.
const DIRS = ['/opt', '/etc/cni', '/var/lib', '/run/cni', '/run/plumb']

/** A namespace as a node of its own, with private folders; `sh` gives what the script printed, or rejects. */
async function onNode(
  ns: Namespace,
  work: (sh: (script: string) => Promise<string>, fails: (script: string) => Promise<string>) => Promise<void>,
): Promise<void> {
  const mounts = DIRS.map((dir) => `mkdir -p ${dir}; mount -t tmpfs tmpfs ${dir}`).join('\n')
  const holder = execa(
    'unshare',
    ['--mount', '--propagation', 'private', 'sh', '-ec', `${mounts}\necho ready\nexec sleep infinity`],
    { reject: false },
  )
  let said = ''
  holder.stdout?.on('data', (chunk) => {
    said += chunk
  })
  const run = (script: string) =>
    ns.exec(['nsenter', `--mount=/proc/${holder.pid}/ns/mnt`, 'sh', '-euc', script], { cwd: '/' })
  try {
    await until(() => said.includes('ready'), 60_000)
    const sh = async (script: string) => {
      const { status, stdout, stderr } = await run(script)
      assert.equal(status, 0, `${script}\n${stdout}${stderr}`)
      return stdout
    }
    const fails = async (script: string) => {
      const { status, stdout, stderr } = await run(script)
      assert.equal(status, 1, stdout)
      return stderr
    }
    await work(sh, fails)
  } finally {
    holder.kill('SIGKILL')
    await holder
  }
}

const files = (sh: (script: string) => Promise<string>) =>
  sh(`find ${DIRS.join(' ')} -mindepth 1 -printf '%p %s %T@\\n' | sort`)
const prepare = `
mkdir -p /opt/cni/bin /etc/cni/net.d
printf '#!/bin/sh\\necho the one before\\n' >/opt/cni/bin/bridge
chmod 755 /opt/cni/bin/bridge
${PLUMB} install --with-plumb
cat >/etc/cni/net.d/10-pods.conflist <<'CONF'
${JSON.stringify(NETWORK)}
CONF
ip link add name br9 type bridge
ip link set lo up`
const past = (text: string) => text.replace(/^would remove/gm, 'removed').replace(/^would put back/gm, 'put back')

describe('plumb uninstall --purge', () => {
  it(
    'is refused while a pod lives, names it, says beforehand what it will do without doing it, and leaves nothing of plumb',
    inNamespaces(['node', 'pod', 'other'], async ({ node, pod, other }, test) => {
      test.timeout(240_000)
      await onNode(node, async (sh, fails) => {
        await sh(prepare)
        const links = () => sh('ip -o link | cut -d" " -f2')
        const fresh = await links()
        await sh(
          `${INSTALLED} cni add pods ${pod.path} --container-id c7 --port-mapping 8080:80/tcp --port-mapping 8053:53/udp`,
        )
        // Without the link-local addresses, and the elements, that the kernel takes a second later.
        const kernel = () =>
          sh('ip -o link | cut -d" " -f2; ip -o addr show scope global; nft list ruleset | grep -v expires')
        for (const command of ['uninstall', 'uninstall --purge']) {
          const before = [await files(sh), await kernel()]
          const said = await fails(`${INSTALLED} ${command}`)
          assert.match(said, /1 of the pods that plumb attached lives: pods c7:eth0/)
          assert.match(said, /--force/)
          assert.match(
            await sh(`${INSTALLED} ${command} --dry-run`),
            /^would be refused without --force: .*pods c7:eth0$/m,
          )
          assert.deepEqual([await files(sh), await kernel()], before)
        }
        // A pod of Kubernetes is named as the kubelet names it.
        const args = '--args "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0"'
        await sh(`${INSTALLED} cni add pods ${other.path} --container-id c8 ${args}`)
        assert.match(
          await fails(`${INSTALLED} uninstall`),
          /2 of the pods that plumb attached live: pods c7:eth0, shop\/cart-0\b/,
        )
        await sh(`${INSTALLED} cni del pods ${other.path} --container-id c8`)
        await sh(`${INSTALLED} cni del pods ${pod.path} --container-id c7`)
        assert.match(await sh('ip link show cni7'), /alias plumb-bridge/)
        const before = [await files(sh), await kernel()]
        const told = await sh(`${INSTALLED} uninstall --purge --dry-run`)
        assert.deepEqual([await files(sh), await kernel()], before)
        for (const line of [
          'remove link cni7',
          'remove nft table inet plumb',
          'remove /run/cni/plumb',
          'remove /var/lib/cni/networks/pods',
          'put back /opt/cni/bin/bridge',
          'remove /opt/cni/bin/plumb',
          'remove /var/lib/plumb',
        ])
          assert.match(told, new RegExp(`^would ${line}$`, 'm'))
        assert.equal(await sh(`${INSTALLED} uninstall --purge`), past(told))
        assert.deepEqual([await links(), /plumb/i.test(await sh('nft list ruleset; iptables-save'))], [fresh, false])
        // Neither the bridge nor the network is plumb's.
        await sh('ip link show br9; test -s /etc/cni/net.d/10-pods.conflist')
        assert.equal(
          await sh('/opt/cni/bin/bridge; ls -A /opt/cni/bin /run/cni /run/plumb; ls -A /var/lib/cni/networks'),
          'the one before\n/opt/cni/bin:\nbridge\n\n/run/cni:\n\n/run/plumb:\n',
        )
        // The test has mounted that one.
        assert.equal(await sh(`${PLUMB} uninstall --purge`), 'removed /run/plumb\n')
      })
    }),
  )

  it(
    'with --force takes their network from pods that live; a bridge with a port of somebody else stays',
    inNamespaces(['node', 'one', 'two'], async ({ node, one, two }, test) => {
      test.timeout(240_000)
      await onNode(node, async (sh) => {
        await sh(prepare)
        for (const [id, { path }] of Object.entries({ c1: one, c2: two }))
          await sh(`${INSTALLED} cni add pods ${path} --container-id ${id} --port-mapping 808${id.slice(1)}:80/tcp`)
        await sh('ip link add name other0 type veth peer name other1; ip link set other0 master cni7')
        const told = await sh(`${INSTALLED} uninstall --purge --force --dry-run`)
        assert.match(told, /^left bridge cni7: other0 stands on it$/m)
        assert.equal(await sh(`${INSTALLED} uninstall --purge --force`), past(told))
        for (const pod of [one, two])
          assert.deepEqual(
            (await pod.json('link')).map(({ ifname }) => ifname),
            ['lo'],
          )
        assert.doesNotMatch(await sh('ip link; nft list tables'), /alias plumb\/|inet plumb/)
        await sh('ip link show cni7; test ! -e /run/cni/plumb; test ! -e /var/lib/cni/networks/pods')
      })
    }),
  )

  it(
    'takes away what the agent made as plumb agent cleanup does, by the options after --, and is refused while the agent runs',
    inCluster(
      2,
      (cluster) => fileStore(cluster, { Network: '10.244.0.0/16', Backend: { Type: 'vxlan' } }),
      async ({ nodes }, test) => {
        test.timeout(240_000)
        const [node, other] = nodes as [Node, Node]
        const [agent, peer] = [node.agent(), other.agent()]
        await Promise.all([agent, peer].map((one) => one.ready(60_000)))
        await until(async () => (await node.ns.ip('route')).includes('flannel.1'), 60_000)
        await onNode(node.ns, async (sh, fails) => {
          const uninstall = (option = '') => `${PLUMB} uninstall --purge ${option} -- ${node.options.join(' ')}`
          assert.match(await fails(uninstall()), /the agent runs, process \d+/)
          assert.match(await sh(uninstall('--dry-run')), /^would be refused: Cannot clean up: the agent runs/m)
          await agent.stop()
          const before = await snapshot(node.ns)
          const told = await sh(uninstall('--dry-run'))
          assert.deepEqual([await snapshot(node.ns), subnetEnv(node) === undefined], [before, false])
          for (const line of [
            'give back the subnet of node n1',
            'run ip: link delete dev flannel.1',
            `remove ${node.dir}/subnet.env`,
          ])
            assert.match(told, new RegExp(`^would ${line}`, 'm'))
          assert.match(await sh(uninstall()), /^gave back the subnet of node n1$/m)
          assert.doesNotMatch(await sh('ip link; nft list tables'), /flannel|plumb/)
          assert.deepEqual([subnetEnv(node), existsSync(join(node.dir, 'state'))], [undefined, false])
        })
      },
    ),
  )
})
