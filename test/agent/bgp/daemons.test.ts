// lane: peers
// Tests agent/bgp with BGP daemons of other projects.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { birdPid, endBird, established, startRouter, torConf, withBgp } from '../../support/bgp.ts'
import { BIRD_1, type Daemon, missingDaemons, startFrr, startGobgp } from '../../support/bgp-daemons.ts'
import { inNamespaces, type Namespace, ping, until } from '../../support/harness.ts'
import { type Agent, UNDERLAY } from '../../support/nodes.ts'
import { withFixture } from '../../support/services-fixture.ts'
import { skip } from '../../support/skip.ts'

const PASSWORD = 'pass-of-the-mesh'
/** The nodes of the others: address, subnet of pods, and the address of a pod. */
const GOBGP = { ip: UNDERLAY.v4(9), subnet: '10.244.9.0/24', pod: '10.244.9.1' }
const CALICO = { ip: UNDERLAY.v4(8), subnet: '10.244.8.0/24', pod: '10.244.8.1' }

describe('BGP with other daemons', () => {
  before(function () {
    const why = missingDaemons()
    if (why !== undefined) skip(this, why)
  })

  it(
    'nodes with GoBGP (kube-router) and with BIRD 1.6 (Calico) in one mesh: subnets and packets both ways, what is not theirs is refused, and restarts of each side lose no route',
    inNamespaces(['gobgp', 'calico'], async (spaces, test) => {
      await withBgp({ count: 2, yaml: '', tor: torConf({ nodes: [] }) }, async (scene) => {
        const { agents, nodes, pods, hub, dir, write } = scene
        const [first, agent, pod] = [nodes[0], agents[0] as Agent, pods[0]]
        assert.ok(first && pod)
        await joinHub(hub, spaces.gobgp, 9, GOBGP)
        await joinHub(hub, spaces.calico, 8, CALICO)
        writeFileSync(join(dir, 'secret'), `${PASSWORD}\n`)
        const subnets = pods.map(({ ip }) => ip.replace(/\d+$/, '0/24'))
        // kube-router writes the routes of the others itself.
        for (const [i, dst] of subnets.entries()) await spaces.gobgp.ip('route', 'add', dst, 'via', UNDERLAY.v4(i + 1))
        const neighbours = nodes.map(({ n }) => UNDERLAY.v4(n))
        const told = { ip: GOBGP.ip, asn: 64_512, neighbours, password: PASSWORD }
        const gobgp = await startGobgp(spaces.gobgp, join(dir, 'gobgp'), told)
        const calico = await startRouter(spaces.calico, join(dir, 'calico'), calicoConf(neighbours), BIRD_1)
        try {
          await gobgp.announce(GOBGP.subnet, GOBGP.ip)
          // The subnet of another node, a part of it, and what is no subnet.
          for (const dst of [subnets[0], subnets[1]?.replace('0/24', '128/25'), '10.244.16.0/20', '0.0.0.0/0'])
            await gobgp.announce(dst as string, GOBGP.ip)
          const peer = (name: string, { ip }: { ip: string }, more = '') =>
            `{ name: ${name}, address: ${ip}, asn: 64512, subnets: true${more} }`
          const secret = `, passwordFile: ${join(dir, 'secret')}`
          write(`programs: bird\npeers: [${peer('gobgp', GOBGP, secret)}, ${peer('calico', CALICO)}]\n`)
          for (const one of agents) await established(one, ['gobgp', 'calico'], 60_000)
          const learned = async () => (await first.ns.ip('route', 'show', 'proto', 'bird')).trim().split(/ *\n/).sort()
          const wanted = [
            `${subnets[1]} via ${UNDERLAY.v4(2)} dev eth0 metric 32`,
            `${CALICO.subnet} via ${CALICO.ip} dev eth0 metric 32`,
            `${GOBGP.subnet} via ${GOBGP.ip} dev eth0 metric 32`,
          ].sort()
          const isLearned = async () => (await learned()).join() === wanted.join()
          await until(isLearned, 30_000).catch(async () => assert.deepEqual(await learned(), wanted))
          const isTheirs = async () => {
            const hops = (await gobgp.nextHops(subnets[1] as string)).includes(UNDERLAY.v4(2))
            const { stdout } = await spaces.calico.exec(['ip', 'route', 'show', subnets[0] as string])
            return hops && stdout.includes(`via ${UNDERLAY.v4(1)} dev eth0`)
          }
          await until(isTheirs, 30_000)
          for (const { pod: theirs } of [GOBGP, CALICO]) assert.ok(await ping(pod.ns, theirs), theirs)
          for (const { ip } of pods)
            for (const ns of [spaces.gobgp, spaces.calico]) assert.ok(await ping(ns, ip), `${ns.name} to ${ip}`)
          // Their daemons die, and start again.
          await gobgp.kill()
          await calico.stop('SIGKILL')
          const isAway = async (name: string) =>
            (await agent.status())?.bgp?.sessions.some((one) => one.name === name && one.state !== 'Established')
          await until(() => isAway('gobgp'), 30_000)
          assert.ok(await isLearned(), (await learned()).join('\n'))
          for (const { pod: theirs } of [GOBGP, CALICO]) assert.ok(await ping(pod.ns, theirs), theirs)
          await gobgp.restart()
          await gobgp.announce(GOBGP.subnet, GOBGP.ip)
          const again = await startRouter(spaces.calico, join(dir, 'calico'), calicoConf(neighbours), BIRD_1)
          try {
            await established(agent, ['gobgp', 'calico'], 90_000)
            await until(isLearned, 30_000)
            // BIRD of a plumb node dies. Both keep its routes, and have them afterwards.
            process.kill(birdPid(first) as number, 'SIGKILL')
            const has = async () => (await gobgp.nextHops(subnets[0] as string)).includes(UNDERLAY.v4(1))
            assert.ok(await has())
            await until(async () => ((await agent.status())?.bgp?.restarts ?? 0) >= 1, 30_000)
            await established(agent, ['gobgp', 'calico'], 90_000)
            assert.ok(await has())
            assert.ok(await isTheirs())
            for (const { pod: theirs } of [GOBGP, CALICO]) assert.ok(await ping(pod.ns, theirs), theirs)
          } finally {
            await again.stop('SIGKILL')
          }
        } finally {
          await gobgp.kill()
          await calico.stop('SIGKILL')
        }
      }).call(test)
    }),
  ).timeout(300_000)

  const VIP = '192.0.2.10'
  const ROUTER = UNDERLAY.v4(3)
  const yaml = (secret: string) =>
    `peers: [{ name: router, address: ${ROUTER}, asn: 65000, passwordFile: ${secret} }]\nannounce: { loadBalancerIPs: [192.0.2.0/24] }\n`
  for (const name of ['FRR', 'GoBGP'] as const)
    it(
      `${name} as the outer router, with a password: an address of policy Local follows its endpoints, and SIGKILL to BIRD takes no route away`,
      withFixture(async (fixture) => {
        const { n1, n2, client, agents } = fixture
        const dir = dirname(n1.dir)
        const secret = join(dir, 'secret')
        writeFileSync(secret, `${PASSWORD}\n`)
        writeFileSync(join(dir, 'bgp.yaml'), yaml(secret))
        const told = { ip: ROUTER, asn: 65_000, neighbours: [UNDERLAY.v4(1), UNDERLAY.v4(2)], password: PASSWORD }
        const gobgp = name === 'GoBGP' ? await startGobgp(client, join(dir, 'router'), told) : undefined
        const router: Daemon = gobgp ?? (await startFrr(client, join(dir, 'router'), told))
        const ways = async () => {
          const hops =
            (await gobgp?.nextHops(`${VIP}/32`)) ??
            [...(await client.ip('route', 'show', `${VIP}/32`)).matchAll(/via (\S+)/g)].map(([, via = '']) => via)
          return hops.sort().join()
        }
        const are = (...wanted: readonly number[]) =>
          until(async () => (await ways()) === wanted.map((n) => UNDERLAY.v4(n)).join(), 30_000).catch(async () =>
            assert.fail(`${VIP} has ${await ways()}, want ${wanted}`),
          )
        try {
          for (const agent of agents) await established(agent, ['router'], 60_000)
          const spec = { clusterIP: '10.96.0.10', type: 'LoadBalancer', externalTrafficPolicy: 'Local' }
          fixture.service('s', spec, { status: { loadBalancer: { ingress: [{ ip: VIP }] } } })
          fixture.slice('s', ['a', 'c'])
          await fixture.sync()
          await are(1, 2)
          if (!gobgp) {
            const answers = await fixture.tcp('client', VIP, 80, { count: 40 })
            assert.deepEqual(
              answers.filter((one) => !/^[ac] /.test(one)),
              [],
            )
          }
          fixture.slice('s', ['c'])
          await fixture.sync()
          await are(2)
          const before = birdPid(n2) as number
          process.kill(before, 'SIGKILL')
          await until(async () => ![undefined, before].includes((await agents[1]?.status())?.bgp?.pid), 30_000)
          assert.equal(await ways(), UNDERLAY.v4(2))
          await established(agents[1] as Agent, ['router'], 90_000)
          assert.equal(await ways(), UNDERLAY.v4(2))
          fixture.slice('s', ['a'])
          await fixture.sync()
          await are(1)
        } finally {
          await Promise.all([n1, n2].map(endBird))
          await router.kill()
        }
      }, '--bgp-config=MANIFESTS/../bgp.yaml'),
    ).timeout(300_000)
})

async function joinHub(hub: Namespace, ns: Namespace, n: number, { pod }: { pod: string }): Promise<void> {
  await hub.ip('link', 'add', 'name', `port${n}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', ns.path)
  await hub.ip('link', 'set', `port${n}`, 'master', 'hub0', 'up')
  await ns.ip('link', 'set', 'lo', 'up')
  await ns.ip('link', 'set', 'eth0', 'up')
  await ns.ip('addr', 'add', `${UNDERLAY.v4(n)}/24`, 'dev', 'eth0')
  await ns.ip('addr', 'add', `${pod}/24`, 'dev', 'lo')
}

// As calico/node makes it for a mesh (confd's bird.cfg.template): no `direct`, all is taken, one filter lets the own
// subnet out.
function calicoConf(neighbours: readonly string[]): string {
  return [
    `router id ${CALICO.ip};`,
    'protocol direct { interface -"cali*", "*"; }',
    'protocol device { scan time 2; }',
    'protocol kernel { learn; persist; scan time 2; import all; export all; graceful restart; merge paths on; }',
    `protocol static { route ${CALICO.subnet} blackhole; }`,
    'template bgp bgp_template {',
    '  local as 64512; multihop; gateway recursive; import all; add paths on; graceful restart;',
    `  export filter { if net = ${CALICO.subnet} then accept; reject; };`,
    '  connect delay time 2; connect retry time 5; error wait time 5,30;',
    '}',
    ...neighbours.map(
      (address, i) =>
        `protocol bgp Mesh_${i} from bgp_template { neighbor ${address} as 64512; source address ${CALICO.ip}; }`,
    ),
    '',
  ].join('\n')
}
