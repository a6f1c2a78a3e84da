// lane: peers
// Tests conf/chart and scripts/chart.ts.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'
import { parseAllDocuments } from 'yaml'
import { parseBgp } from '../../../agent/bgp/configuration.ts'
import { readSettings } from '../../../agent/settings/read.ts'
import { version } from '../../../package.json'
import { helm, manifest } from '../../../scripts/chart.ts'
import { skip } from '../../support/skip.ts'

const ROOT = join(import.meta.dir, '../../..')
const CHART = join(ROOT, 'conf/chart')

interface PodSpec {
  readonly hostNetwork: boolean
  readonly containers: readonly {
    readonly securityContext: object
    readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string; readonly subPath?: string }[]
  }[]
  readonly volumes: readonly Readonly<Record<string, unknown>>[]
}
interface Manifest {
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly annotations?: Readonly<Record<string, string>>
    readonly labels?: Readonly<Record<string, string>>
  }
  readonly spec?: { readonly template?: Pick<Manifest, 'metadata'> & { readonly spec?: PodSpec } }
  readonly data: Readonly<Record<string, string>>
}

describe('conf/chart', () => {
  let program = ''
  before(function () {
    program = helm() ?? skip(this, 'helm was not built: npm run chart builds it with Go')
  })
  const template = (...values: string[]) =>
    execa(program, ['template', 'plumb', CHART, '--namespace', 'net', ...values.flatMap((one) => ['--set', one])], {
      reject: false,
    })
  const rendered = async (...values: string[]) => {
    const { exitCode, stdout, stderr } = await template(...values)
    assert.equal(exitCode, 0, stderr)
    return parseAllDocuments(stdout).map((one) => (one as unknown as { toJSON(): Manifest }).toJSON())
  }

  it('is what helm lint takes, and has the version of package.json', async () => {
    const { stdout } = await execa(program, ['lint', '--strict', CHART])
    assert.match(stdout, /0 chart\(s\) failed/)
    assert.match(
      readFileSync(join(CHART, 'Chart.yaml'), 'utf8'),
      new RegExp(`^version: ${version}\nappVersion: ${version}$`, 'm'),
    )
  })

  it('a ServiceMonitor is there when it is wanted, with its labels, and not without the Service that it selects', async () => {
    const monitors = async (...values: string[]) =>
      (await rendered(...values)).filter(({ kind }) => kind === 'ServiceMonitor')
    assert.deepEqual(await monitors('metrics.enabled=true'), [])
    const wish = ['metrics.serviceMonitor.enabled=true', 'metrics.serviceMonitor.labels.release=prometheus']
    const [one] = await monitors('metrics.enabled=true', ...wish)
    assert.equal(one?.metadata.labels?.['release'], 'prometheus')
    assert.match(JSON.stringify(one), /"matchLabels":\{"app":"plumb-agent"\}.*"port":"metrics","interval":"30s"/)
    const { stderr } = await template(...wish)
    assert.match(stderr, /metrics\.enabled does not match: true/)
  })

  it('every object has the labels of Helm’s conventions, and kubectl logs takes the agent’s container', async () => {
    const want = {
      'app.kubernetes.io/name': 'plumb',
      'app.kubernetes.io/instance': 'plumb',
      'app.kubernetes.io/version': version,
      'helm.sh/chart': `plumb-${version}`,
    }
    const all = await rendered('metrics.enabled=true', 'createNamespace=true', 'page.enabled=true')
    assert.ok(all.length > 12)
    for (const { kind, metadata, spec } of all) {
      for (const [name, value] of Object.entries(want))
        assert.equal(metadata.labels?.[name], value, `${kind} ${metadata.name}`)
      if (kind === 'DaemonSet' || kind === 'Deployment')
        assert.equal(spec?.template?.metadata.labels?.['app.kubernetes.io/instance'], 'plumb')
    }
    const agent = all.find(({ kind, metadata }) => kind === 'DaemonSet' && metadata.name === 'plumb-agent')
    assert.equal(agent?.spec?.template?.metadata.annotations?.['kubectl.kubernetes.io/default-container'], 'agent')
  })

  it('conf/kubernetes.yaml is what the chart renders', async () => {
    assert.equal(readFileSync(join(ROOT, 'conf/kubernetes.yaml'), 'utf8'), await manifest(program))
  })

  it('its settings are read by the agent, with every value changed', async () => {
    const values = [
      'network.ipv6=fd44::/48',
      'metrics.enabled=true',
      'agent.probe-interval=0',
      'host.plugins=/usr/libexec/cni',
      'network.backend.Type=host-gw',
      'network.pods=bridge',
    ]
    for (const given of [[], values, ['network.ipv4=', ...values]]) {
      const { data } = (await rendered(...given)).find(({ kind }) => kind === 'ConfigMap') as Manifest
      const settings = readSettings([], {}, { path: 'agent.yaml', text: data['agent.yaml'] as string }, 'node-1')
      assert.deepEqual(
        [settings.notes, settings.store.kind, settings.files.binDir, settings.files.pods],
        [[], 'kube', ...(given.length > 0 ? ['/usr/libexec/cni', 'bridge'] : ['/opt/cni/bin', 'routed'])],
      )
      const network = JSON.parse(data['net-conf.json'] as string)
      assert.deepEqual(
        [network.Backend.Type, network.IPv6Network],
        given.length > 0 ? ['host-gw', 'fd44::/48'] : ['vxlan', undefined],
      )
    }
  })

  it('BGP: the configuration is a ConfigMap in the folder that --bgp-config names, and passwords are files of a Secret', async () => {
    const peer = ['bgp.enabled=true', 'bgp.config.peers[0].address=192.0.2.1', 'bgp.config.peers[0].asn=65000']
    const secret = ['bgp.secret=routers', 'bgp.config.peers[0].passwordFile=/etc/plumb/secrets/routers/tor']
    const own = ['bgp.enabled=true', 'bgp.configMap=mine']
    for (const [given, name] of [
      [['bgp.enabled=true'], 'plumb-bgp'],
      [[...peer, ...secret], 'plumb-bgp'],
      [own, 'mine'],
    ] as const) {
      const all = await rendered(...given)
      const of = (kind: string, name: string) =>
        all.find((one) => one.kind === kind && one.metadata.name === name) as Manifest
      const { bgp } = readSettings(
        [],
        {},
        { path: 'a', text: of('ConfigMap', 'plumb').data['agent.yaml'] as string },
        'n',
      )
      const folder = `/etc/plumb/configmaps/${name}`
      assert.equal(bgp?.file, `${folder}/bgp.yaml`)
      const made = all.find((one) => one.kind === 'ConfigMap' && one.metadata.name === name)
      assert.equal(made === undefined, given === own)
      const conf = parseBgp('bgp.yaml', made?.data['bgp.yaml'] ?? '')
      const passwords = conf.peers.map(({ passwordFile }) => passwordFile)
      const spec = of('DaemonSet', 'plumb-agent').spec?.template?.spec
      assert.ok(spec)
      const { hostNetwork, containers, volumes } = spec
      const mountOf = (path: string) => containers[0]?.volumeMounts.find(({ mountPath }) => mountPath === path)
      const volumeOf = (path: string) => volumes.find((one) => one['name'] === mountOf(path)?.name)
      // BIRD needs port 179 of the node, its routes, and raw sockets.
      assert.deepEqual([hostNetwork, containers[0]?.securityContext], [true, { privileged: true }])
      assert.deepEqual([mountOf(folder)?.subPath, mountOf('/run/plumb')?.name], [undefined, 'socket'])
      assert.deepEqual(volumeOf(folder)?.['configMap'], { name, optional: true })
      const hasSecret = given.some((one) => one === 'bgp.secret=routers')
      assert.deepEqual(passwords, hasSecret ? ['/etc/plumb/secrets/routers/tor'] : [])
      assert.deepEqual(
        volumeOf('/etc/plumb/secrets/routers')?.['secret'],
        hasSecret ? { secretName: 'routers', defaultMode: 0o400, optional: true } : undefined,
      )
    }
    const settings = async (...given: readonly string[]) =>
      (await rendered(...given)).find(({ metadata }) => metadata.name === 'plumb-agent')?.spec?.template?.metadata
        .annotations?.['plumb/settings']
    const [before, after] = [await settings(...peer), await settings(...peer, 'bgp.config.asn=64600')]
    assert.equal(before, after, 'a change of the peers starts no agent again')
    assert.ok(!JSON.stringify(await rendered()).includes('bgp'))
  })

  it('the policy for the agents’ tokens is there from Kubernetes 1.30 on, unless it is switched off', async () => {
    const kinds = async (kube: string, ...values: string[]) => {
      const set = values.flatMap((one) => ['--set', one])
      const { stdout } = await execa(program, ['template', 'plumb', CHART, '-n', 'net', '--kube-version', kube, ...set])
      const found = stdout.match(/^kind: Validating\w+$/gm) ?? []
      assert.equal(found.length > 0, /username == "system:serviceaccount:net:plumb"/.test(stdout))
      return found.map((one) => one.slice('kind: '.length))
    }
    const both = ['ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding']
    for (const [kube, want] of [
      ['1.20.0', []],
      ['1.29.9', []],
      ['1.30.0', both],
      ['v1.31.4-gke.100', both],
      ['1.37.2', both],
    ] as const)
      assert.deepEqual(await kinds(kube), want, kube)
    assert.deepEqual(await kinds('1.37.2', 'ownNodeOnly=false'), [])
  })

  it('the metrics Service and the uninstall hook come and go with their values', async () => {
    const names = async (...values: string[]) =>
      (await rendered(...values)).map(({ kind, metadata }) => `${kind}/${metadata.name}`)
    assert.ok((await names('metrics.enabled=true')).includes('Service/plumb-metrics'))
    const hook = ['DaemonSet/plumb-uninstall', 'Job/plumb-uninstall']
    assert.deepEqual(
      (await names()).filter((one) => hook.includes(one)),
      hook,
    )
    assert.deepEqual(
      (await names('uninstall.enabled=false')).filter((one) => /uninstall|metrics/.test(one)),
      [],
    )
  })

  it('the schema refuses what would not work', async () => {
    for (const [value, named] of [
      ['network.ipv4=10.244.0.0', 'network.ipv4'],
      ['network.ipv4=', 'network'],
      ['network.backend.Type=ipsec', 'network.backend.Type'],
      ['network.pods=ptp', 'network.pods'],
      ['network.ipv4=10.244.0.0/33', 'network.ipv4'],
      ['network.ipv6=fd00::/129', 'network.ipv6'],
      ['agent.store=etcd', 'agent'],
      ['agent.node-name=one', 'agent'],
      ['agent.public-ip=192.0.2.1', 'agent'],
      ['agent.cni-bin-dir=/opt/bin', 'agent'],
      ['image.tags=1', 'image'],
      ['status.port=70000', 'status.port'],
      ['host.plugins=bin', 'host.plugins'],
      ['uninstall.timeout=0', 'uninstall.timeout'],
      ['netwrok.ipv4=10.0.0.0/8', 'netwrok'],
      ['bgp.peers=none', 'bgp'],
      ['ownNodeOnly=no', 'ownNodeOnly'],
      ['replaces=yes', 'replaces'],
      ['bgp.configMap=Mine', 'bgp.configMap'],
      ['bgp.configMap=mine,bgp.config.asn=64512', 'bgp'],
    ] as const) {
      const { exitCode, stderr } = await template(value)
      assert.notEqual(exitCode, 0, value)
      assert.match(stderr, new RegExp(`- .*${named}`), value)
    }
  })

  it('refuses a status server where the kubelet’s probes do not find it', async () => {
    for (const value of [
      'agent.status-address=off',
      'agent.status-address=127.0.0.1:9470',
      'metrics.enabled=true,agent.healthz-port=9470',
    ]) {
      const { exitCode, stderr } = await template(value)
      assert.notEqual(exitCode, 0, value)
      assert.match(stderr, /the kubelet asks at port 9469; want that port, or status\.port/, value)
    }
    for (const value of ['metrics.enabled=true', 'status.port=9470', 'agent.status-address=0.0.0.0:9469'])
      assert.equal((await template(value)).exitCode, 0, value)
  })
})
