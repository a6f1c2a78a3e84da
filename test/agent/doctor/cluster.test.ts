// lane: long
// Tests agent/doctor: what is wrong with Services, name servers and policies of the cluster, of a folder of manifests.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readResolver } from '../../../agent/doctor/facts/resolver.ts'
import { doctor, type Finding, type Fixture, isClean, withFixture } from '../../support/doctor.ts'
import { until } from '../../support/harness.ts'

const LATE = 45_000
const DIR = mkdtempSync(join(tmpdir(), 'manifests-'))
after(() => rmSync(DIR, { recursive: true, force: true }))

/** A pod of the other node. */
const ELSEWHERE = '10.244.200.5'

const write = (file: string, ...objects: readonly object[]) =>
  writeFileSync(join(DIR, file), objects.map((one) => JSON.stringify(one)).join('\n---\n'))

function service(namespace: string, name: string, clusterIP: string, port: number, protocol = 'TCP') {
  return {
    kind: 'Service',
    metadata: { namespace, name },
    spec: { clusterIP, clusterIPs: [clusterIP], ports: [{ port, protocol }] },
  }
}

function slice(namespace: string, name: string, ip: string, port: number, protocol = 'TCP', ready = true) {
  return {
    kind: 'EndpointSlice',
    metadata: { namespace, name: `${name}-1`, labels: { 'kubernetes.io/service-name': name } },
    addressType: 'IPv4',
    ports: [{ port, protocol }],
    endpoints: [{ addresses: [ip], nodeName: ip === ELSEWHERE ? 'n2' : 'n1', conditions: { ready } }],
  }
}

/** Waits until the doctor finds exactly one code, and returns its first finding. */
async function found(fixture: Fixture, code: string): Promise<Finding> {
  let findings: readonly Finding[] = []
  await until(async () => {
    findings = (await doctor(fixture)).findings
    return findings.length > 0
  }, LATE).catch(() => assert.fail(`${code} is not found`))
  assert.deepEqual(
    findings.map((one) => one.code),
    [code],
    JSON.stringify(findings),
  )
  return findings[0] as Finding
}

describe('plumb doctor and the objects of the cluster', () => {
  it(
    'finds each of DR48, DR49, DR50 alone: no ready name server, a Service without pods, a port at which nobody listens, policies that forget DNS',
    withFixture(
      async (fixture) => {
        const { added, pod } = fixture
        const [ip = ''] = (added as { ips: { address: string }[] }).ips.map(({ address }) => address.split('/')[0])
        const meta = { namespace: 'x', name: 'a', labels: { app: 'a' } }
        const spec = { nodeName: 'n1', containers: [] }
        const object = { kind: 'Pod', metadata: meta, spec, status: { phase: 'Running', podIPs: [{ ip }] } }
        const namespaces = ['x', 'kube-system'].map((name) => ({ kind: 'Namespace', metadata: { name } }))
        const server = ['/usr/bin/python3', '-m', 'http.server', '8080']
        const child = Bun.spawn(['nsenter', `--net=${pod.path}`, '--', ...server], {
          stdio: ['ignore', 'ignore', 'ignore'],
        })
        try {
          write('pods.yaml', object, ...namespaces)
          write('dns.yaml', service('kube-system', 'kube-dns', '10.96.0.10', 53, 'UDP'))
          write('dns-slice.yaml', slice('kube-system', 'kube-dns', ELSEWHERE, 53, 'UDP'))
          write('web.yaml', service('x', 'web', '10.96.0.20', 80), slice('x', 'web', ip, 8080))
          await isClean(fixture)
          write('dns-slice.yaml', slice('kube-system', 'kube-dns', ELSEWHERE, 53, 'UDP', false))
          const dns = await found(fixture, 'DR48')
          assert.equal(
            dns.text,
            'The Service kube-system/kube-dns (10.96.0.10:53/UDP) has no ready endpoint: no pod looks up a name',
          )
          write('dns-slice.yaml', slice('kube-system', 'kube-dns', ELSEWHERE, 53, 'UDP'))
          await isClean(fixture)
          write('none.yaml', service('x', 'none', '10.96.0.30', 80))
          const none = await found(fixture, 'DR49')
          assert.equal(
            none.text,
            'The Service x/none has no endpoints, because no pod matches: clients are refused; compare the selector with the labels of pods',
          )
          rmSync(join(DIR, 'none.yaml'))
          await isClean(fixture)
          write('web.yaml', service('x', 'web', '10.96.0.20', 80), slice('x', 'web', ip, 8081))
          const unheard = await found(fixture, 'DR49')
          assert.match(unheard.text, /^The Service x\/web leads to 10\.244\.\d+\.\d+:8081, and nobody listens there: /)
          write('web.yaml', service('x', 'web', '10.96.0.20', 80), slice('x', 'web', ip, 8080))
          await isClean(fixture)
          const egress = [{ to: [{ ipBlock: { cidr: '192.0.2.0/24' } }], ports: [{ protocol: 'TCP', port: 443 }] }]
          const policy = { podSelector: {}, policyTypes: ['Egress'], egress }
          write('policy.yaml', { kind: 'NetworkPolicy', metadata: { namespace: 'x', name: 'deny' }, spec: policy })
          const forgotten = await found(fixture, 'DR50')
          assert.equal(forgotten.text, 'x/deny isolates x/a for egress and forgets DNS: the pod looks up no name')
          // What kubectl does then: RFC 6902 adds at the end of the list.
          const command = /^kubectl -n x patch networkpolicy deny --type=json -p '(.*)'$/
          const [, text = '[]'] = command.exec(forgotten.commands[0] ?? '') ?? []
          const [{ op, path, value }] = JSON.parse(text)
          assert.deepEqual([op, path], ['add', '/spec/egress/-'])
          const more = { ...policy, egress: [...egress, value] }
          write('policy.yaml', { kind: 'NetworkPolicy', metadata: { namespace: 'x', name: 'deny' }, spec: more })
          await isClean(fixture)
          // A pod that may send nothing at all is as somebody wants it.
          const none2 = { podSelector: {}, policyTypes: ['Egress'] }
          write('policy.yaml', { kind: 'NetworkPolicy', metadata: { namespace: 'x', name: 'deny' }, spec: none2 })
          await isClean(fixture)
        } finally {
          child.kill('SIGKILL')
          await child.exited
        }
      },
      `--network-policy=${DIR}`,
      `--service-proxy=${DIR}`,
    ),
  )

  it('DR48: the name servers are those of the file that kubelet gives to pods, by its options and its configuration', () => {
    const dir = join(DIR, 'kubelet')
    mkdirSync(dir)
    const [conf, resolv] = [join(dir, 'config.yaml'), join(dir, 'resolv.conf')]
    writeFileSync(resolv, '# stub\nnameserver 127.0.0.53\noptions edns0\nnameserver 192.0.2.53\n')
    writeFileSync(conf, `kind: KubeletConfiguration\nresolvConf: ${resolv}\n`)
    const kubelet = (...argv: string[]) => [{ pid: 3, name: 'kubelet', argv: ['/usr/bin/kubelet', ...argv] }]
    const servers = ['127.0.0.53', '192.0.2.53']
    assert.deepEqual(readResolver(kubelet(`--config=${conf}`)), { path: resolv, kubelet: conf, servers })
    assert.deepEqual(readResolver(kubelet('--config', conf, '--resolv-conf=')), {
      path: '',
      kubelet: conf,
      servers: [],
    })
    assert.equal(readResolver([]), undefined)
  })
})
