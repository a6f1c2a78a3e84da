// lane: long
// Tests agent/store/kube and agent/cluster, with an API server that lies, hangs and cuts.
import assert from 'node:assert/strict'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { accessOf } from '../../../../agent/cluster/access.ts'
import { Api } from '../../../../agent/cluster/api.ts'
import { Collection, PATIENCE } from '../../../../agent/cluster/collection.ts'
import { SharedCollection } from '../../../../agent/cluster/shared-collection.ts'
import { parseNetworkConf } from '../../../../agent/lease/network-configuration.ts'
import { follow } from '../../../../agent/scheduler/follow.ts'
import { ValueError } from '../../../../lib/text/errors.ts'
import { until } from '../../../support/harness.ts'
import { API, type Kube, onKube, served } from '../../../support/kube-nodes.ts'
import { administered, type KubeServer, kubeServer, type Raw, refusal } from '../../../support/kube-server.ts'
import { kubeconfigOf } from '../../../support/kubeconfig.ts'
import { type Node, subnetEnv } from '../../../support/nodes.ts'
import { patient } from '../../../support/patience.ts'
import { draft, followed, NETWORK, published, storeOf, testKube } from '../../../support/suites/testKube.ts'
import { BACK_MS, routes, says, testKubeAgent, told } from '../../../support/suites/testKubeAgent.ts'

const NODES = '/api/v1/nodes'
const ALONE = { network: JSON.parse(NETWORK), podCidrs: () => ['10.244.1.0/24'], more: ['peer', 'new'] }
const CONF = parseNetworkConf(NETWORK)
const signal = AbortSignal.timeout(patient(600_000))

describe('the kube store', () => {
  testKube('a server of the test', async () => administered(await kubeServer()))
})

/** A cluster of a node and one peer, followed; and the number of snapshots since. */
async function watching(network = NETWORK) {
  const server = await kubeServer()
  const admin = administered(server)
  await admin.create('own', ['10.244.1.0/24'])
  await admin.create('peer', ['10.244.2.0/24'], published(2))
  const store = storeOf(server.kubeconfig, 'own', { network })
  await store.config(signal)
  const end = new AbortController()
  const seen = followed(store, end.signal)
  await until(() => seen.last()?.leases.length === 1)
  const peers = () => (seen.last()?.leases ?? []).map(({ node }) => node)
  return { server, admin, store, seen, peers, end }
}

describe('plumb agent in a cluster', () => {
  testKubeAgent('a server of the test', async (test) =>
    served(/IPv6 alone/.test(test.test?.title ?? '') ? API.v6 : API.v4),
  )

  it(
    'an agent with the store kube, NetworkPolicy and Services lists and watches Nodes once for all of them',
    onKube(
      1,
      ALONE,
      () => served(API.v4),
      async ([node], kube) => {
        const { server } = kube as Kube & { readonly server: KubeServer }
        const { ns } = node as Node
        const agent = (node as Node).agent('--network-policy=kubernetes', '--service-proxy=kubernetes')
        await agent.ready(30_000)
        await until(async () => (await agent.status())?.services !== undefined, 20_000)
        await kube.create('peer', ['10.244.2.0/24'], published(2))
        await until(async () => (await routes(ns)).includes('10.244.2.0/24'))
        const ofNodes = server.asked().filter((line) => line.startsWith(`GET ${NODES}?`))
        const [lists, watches] = [false, true].map((watch) =>
          ofNodes.filter((line) => line.includes('watch=') === watch),
        )
        assert.deepEqual([lists?.length, watches?.length], [1, 1], ofNodes.join('\n'))
      },
    ),
  )

  const refuses =
    (
      code: number,
      message: string,
      which: (asked: { readonly method: string; readonly url: URL }) => boolean = () => true,
    ) =>
    (server: KubeServer) => {
      server.fault = (asked) =>
        which(asked) && asked.headers.get('User-Agent')?.startsWith('plumb-agent')
          ? refusal(code, 'Refused', message)
          : undefined
      server.cut()
    }
  const serves = (server: KubeServer) => {
    server.fault = undefined
  }
  const FAULTS: readonly (readonly [
    string,
    (server: KubeServer) => unknown,
    RegExp,
    (server: KubeServer) => unknown,
  ])[] = [
    [
      'is gone',
      (server) => server.close(),
      /does not answer: (the connection was refused|it closed the connection|it cut the connection)/,
      (server) => server.open(),
    ],
    ['answers 429', refuses(429, 'too many requests'), /refused GET \S+: 429 too many requests/, serves],
    [
      'answers 500',
      refuses(500, 'etcdserver: request timed out'),
      /refused GET \S+: 500 etcdserver: request timed out/,
      serves,
    ],
    [
      'answers 503',
      refuses(503, 'the server is shutting down'),
      /refused GET \S+: 503 the server is shutting down/,
      serves,
    ],
    [
      'has a certificate that expired',
      (server) => server.renew(-1),
      /does not answer: its certificate has expired/,
      (server) => server.renew(),
    ],
    [
      'has a certificate that is not valid yet',
      (server) => server.renew('early'),
      /does not answer: its certificate is not valid yet; is this node's clock right\?/,
      (server) => server.renew(),
    ],
    [
      'has a certificate of another authority',
      (server) => server.renew(2, 'unknown'),
      /its certificate is signed by an authority that is not known here/,
      (server) => server.renew(),
    ],
    [
      'does not take the token any more',
      refuses(401, 'Unauthorized'),
      /401 Unauthorized; the credentials of the kubeconfig \S+ do not count/,
      serves,
    ],
    [
      'does not let the agent watch',
      refuses(403, 'nodes is forbidden', ({ url }) => url.searchParams.has('watch')),
      /refused GET \/api\/v1\/nodes: 403 nodes is forbidden; want a role that allows it/,
      serves,
    ],
  ]
  for (const [what, begin, said, end] of FAULTS)
    it(
      `an API server that ${what}: routes stand, one line in the log, the status says it, and what is new is there 5 s after its end`,
      onKube(
        1,
        ALONE,
        () => served(API.v4),
        async ([node], kube) => {
          const { server } = kube as Kube & { readonly server: KubeServer }
          const { ns } = node as Node
          await kube.create('peer', ['10.244.2.0/24'], published(2))
          const agent = (node as Node).agent()
          await agent.ready(30_000)
          await until(async () => (await routes(ns)).includes('10.244.2.0/24'))
          const before = await routes(ns)
          await begin(server)
          await says(
            agent,
            new RegExp(`^200 degraded: the store is away, going on with what is known: .*${said.source}`),
          )
          await until(() => told(agent, said) === 1)
          // Longer than the longest pause between two attempts.
          for (const over = Date.now() + 6000; Date.now() < over; await Bun.sleep(200))
            assert.equal(await routes(ns), before)
          await end(server)
          const over = Date.now()
          await kube.create('new', ['10.244.3.0/24'], published(3))
          await until(async () => (await routes(ns)).includes('10.244.3.0/24'), BACK_MS + over - Date.now())
          await says(agent, /^200 ready$/)
          await until(() => told(agent, /the store is back after/) === 1)
          assert.equal(told(agent, said), 1, agent.log())
        },
      ),
    ).timeout(60_000)

  for (const [what, code, message] of [
    ['a role that misses the verb patch', 403, 'nodes "n1" is forbidden'],
    ['an admission webhook that refuses the patch', 422, 'admission webhook "guard" denied the request'],
  ] as const)
    it(
      `${what}: no lease, one line in the log, and the status says it; 5 s after its end the node has its subnet. The same for a node that serves: it goes on`,
      onKube(
        1,
        ALONE,
        () => served(API.v4),
        async ([node], kube) => {
          const { server } = kube as Kube & { readonly server: KubeServer }
          const agent = (node as Node).agent()
          const said = new RegExp(`refused PATCH /api/v1/nodes/n1/status: ${code} ${message.replaceAll('"', '\\\\"')}`)
          refuses(code, message, ({ method }) => method === 'PATCH')(server)
          await says(agent, new RegExp(`^503 .*this node has no subnet yet: .*${said.source}`, 's'))
          // By now the pauses between attempts are at their longest.
          for (const over = Date.now() + 6000; Date.now() < over; await Bun.sleep(200))
            assert.equal(told(agent, said), 1, agent.log())
          serves(server)
          await agent.ready(BACK_MS)
          assert.equal(subnetEnv(node as Node)?.['FLANNEL_SUBNET'], '10.244.1.1/24')
          await says(agent, /^200 ready$/)
          refuses(code, message, ({ method }) => method === 'PATCH')(server)
          await kube.annotate('n1', { 'flannel.alpha.coreos.com/public-ip': null })
          await says(agent, new RegExp(`^200 degraded: what this node publishes may be old: .*${said.source}`))
          serves(server)
          await until(
            async () =>
              (await kube.get('n1'))?.metadata.annotations?.['flannel.alpha.coreos.com/public-ip'] === '172.30.0.1',
            BACK_MS,
          )
          await says(agent, /^200 ready$/)
        },
      ),
    ).timeout(90_000)
})

describe('the kube store, when the API misbehaves', () => {
  const cuts: readonly (readonly [string, string | Uint8Array | undefined])[] = [
    ['between two lines', undefined],
    ['inside a line', '{"type":"MODIFIED","object":{"metadata":{"name":"pe'],
    ['inside a letter', Uint8Array.from([0x7b, 0x22, 0xc3])],
  ]
  for (const [where, rest] of cuts)
    it(`a watch that is cut ${where} goes on from the last change, without a list`, async () => {
      const { server, admin, peers, end } = await watching()
      server.asked()
      server.cut(rest)
      await admin.create('third', ['10.244.3.0/24'], published(3))
      await until(() => peers().includes('third'))
      assert.ok(!server.asked().some((line) => line.startsWith(`GET ${NODES}?limit`)))
      end.abort()
    })

  it('a watch that says nothing any more, and whose connection stands, is begun again after the longest silence, from the last change', async () => {
    const { server, admin } = await watching()
    const api = new Api(accessOf({ kubeconfig: server.kubeconfig }), 'test')
    const nodes = new Collection(api, { path: NODES, project: (raw) => (raw as Raw).metadata.name })
    const end = new AbortController()
    const following = follow(nodes, { ...PATIENCE, idleMs: 1000 }, end.signal)
    await until(() => nodes.items.has('peer'))
    server.hush()
    await admin.create('unheard', ['10.244.7.0/24'])
    server.asked()
    await until(() => nodes.items.has('unheard'), 10_000)
    assert.ok(!server.asked().some((line) => line.startsWith(`GET ${NODES}?limit`)))
    end.abort()
    await following
  })

  it('several readers of one list: each has its own values, hears of its own changes, and hears when the server refuses', async () => {
    const server = await kubeServer()
    const admin = administered(server)
    await admin.create('own', ['10.244.1.0/24'])
    const nodes = new SharedCollection(new Api(accessOf({ kubeconfig: server.kubeconfig }), 'test'), NODES)
    const heard: string[] = []
    const reader = (name: string, project: (raw: Raw) => string | undefined) =>
      nodes.reader({
        project: (raw) => project(raw as Raw),
        changed: (key, now, before) => heard.push(`${name} ${key} ${before} ${now}`),
        failed: () => heard.push(`${name} failed`),
        listed: () => heard.push(`${name} listed`),
      })
    const zones = reader('zones', ({ metadata }) => metadata.labels?.['zone'] ?? undefined)
    const colours = reader('colours', ({ metadata }) => {
      const colour = metadata.annotations?.['colour']
      if (colour === 'none') throw new ValueError('no colour')
      return colour ?? undefined
    })
    const end = new AbortController()
    const following = follow(nodes, PATIENCE, end.signal)
    await until(() => heard.length === 2)
    assert.deepEqual(
      [zones.isListed, colours.isListed, heard.splice(0).sort().join()],
      [true, true, 'colours listed,zones listed'],
    )
    const hears = async (text: string) => {
      await until(() => heard.length > 0)
      assert.deepEqual(heard.splice(0), [text])
    }
    await admin.label('own', { zone: 'a' })
    await hears('zones own undefined a')
    await admin.annotate('own', { colour: 'red' })
    await hears('colours own undefined red')
    await admin.annotate('own', { colour: 'none' })
    await hears('colours own red undefined')
    assert.deepEqual([[...zones.items.values()], [...colours.refused.values()]], [['a'], ['no colour']])
    await admin.annotate('own', { colour: 'blue' })
    await hears('colours own undefined blue')
    assert.deepEqual([[...colours.items.values()], colours.refused.size], [['blue'], 0])
    server.fault = () => refusal(403, 'Forbidden', 'not for you')
    server.cut()
    await until(() => heard.includes('zones failed') && heard.includes('colours failed'))
    end.abort()
    await following
  })

  it('410 in the stream, and as a status: everything is listed again, and nothing that stands is forgotten for a moment', async () => {
    const { server, admin, peers, seen, end } = await watching()
    for (const how of ['stream', 'status'] as const) {
      const before = seen.count()
      if (how === 'stream') server.compact()
      else server.fault = ({ url }) => (url.searchParams.has('watch') ? refusal(410, 'Expired', 'too old') : undefined)
      server.cut()
      await admin.create(
        `new-${how}`,
        [how === 'stream' ? '10.244.5.0/24' : '10.244.6.0/24'],
        published(how === 'stream' ? 5 : 6),
      )
      await until(() => peers().includes(`new-${how}`))
      server.fault = undefined
      assert.ok(seen.count() > before)
      assert.ok(peers().includes('peer'))
    }
    await admin.remove('peer')
    await until(() => !peers().includes('peer'))
    end.abort()
  })

  it('an answer without a list is no empty list: what is known stays, and the state says so', async () => {
    const { server, store, peers, end } = await watching()
    server.fault = ({ url }) =>
      url.searchParams.has('watch')
        ? refusal(410, 'Expired', 'too old')
        : Response.json({ kind: 'NodeList', apiVersion: 'v1', metadata: { resourceVersion: '5' } })
    server.cut()
    await until(() => /it answered a list with something else/.test(store.state().error ?? ''))
    assert.deepEqual(peers(), ['peer'])
    server.fault = undefined
    await until(() => store.state().connected)
    assert.deepEqual(peers(), ['peer'])
    end.abort()
  })

  it('a page that is refused with 410 begins the list again; 1,200 nodes come in pages of 100', async () => {
    const server = await kubeServer()
    const admin = administered(server)
    await admin.create('own', ['10.244.1.0/24'])
    for (let i = 0; i < 1200; i++)
      await admin.create(`n${i}`, [`10.244.${16 + (i >> 4)}.${(i & 15) << 4}/28`], published(2))
    let refused = 0
    server.fault = ({ url }) =>
      url.searchParams.has('continue') && refused++ === 0
        ? refusal(410, 'Expired', 'the continue token is too old')
        : undefined
    server.asked()
    const store = storeOf(server.kubeconfig, 'own')
    await store.config(signal)
    const end = new AbortController()
    const seen = followed(store, end.signal)
    await until(() => seen.last() !== undefined, 20_000)
    assert.equal(seen.last()?.leases.length, 1200)
    assert.equal(server.asked().filter((line) => line.startsWith(`GET ${NODES}?limit=100`)).length, 2 + 13)
    end.abort()
  }).timeout(60_000)

  for (const status of [429, 500, 503])
    it(`a server that answers ${status} keeps what is known; the state says so, and 5 s after it is well everything is right`, async () => {
      const { server, admin, store, peers, end } = await watching()
      server.fault = () => refusal(status, 'Busy', 'come back later', { 'Retry-After': '1' })
      server.cut()
      await until(
        () =>
          store.state().connected === false && new RegExp(`${status} come back later`).test(store.state().error ?? ''),
      )
      assert.deepEqual(peers(), ['peer'])
      await Bun.sleep(1500)
      server.fault = undefined
      const well = Date.now()
      await until(async () => {
        await admin.annotate('peer', {
          'flannel.alpha.coreos.com/public-ip': `172.30.9.${1 + (Math.floor(Date.now() / 100) % 200)}`,
        })
        return store.state().connected
      }, 6000)
      assert.ok(Date.now() - well < patient(6000))
      end.abort()
    })

  it('a server that is gone and comes back under the same address is found within 5 s', async () => {
    const { server, admin, store, peers, end } = await watching()
    server.close()
    await until(
      () => /the connection was refused|closed|cut|Unable to connect/i.test(store.state().error ?? ''),
      10_000,
    )
    assert.deepEqual(peers(), ['peer'])
    await Bun.sleep(1000)
    server.open()
    await until(() => store.state().connected, 6000)
    await admin.create('third', ['10.244.3.0/24'], published(3))
    await until(() => peers().includes('third'), 6000)
    end.abort()
  })

  it('a server that is away and back every few seconds: what is known stays, and 5 s after the last return everything is right', async () => {
    const { server, admin, store, peers, end } = await watching()
    for (let round = 0; round < 3; round++) {
      server.close()
      await until(() => !store.state().connected, 15_000)
      assert.deepEqual(peers(), ['peer'])
      server.open()
      await until(() => store.state().connected, 6000)
    }
    await admin.create('third', ['10.244.3.0/24'], published(3))
    await until(() => peers().includes('third'), 6000)
    end.abort()
  }).timeout(90_000)

  it('a server that takes 10 s for each answer is slow, and not away', async () => {
    const { server, store, peers, end } = await watching()
    server.fault = async () => void (await Bun.sleep(10_000))
    server.cut()
    assert.deepEqual((await store.claim(draft('own', 1), CONF, signal)).subnets, { v4: '10.244.1.0/24' })
    assert.deepEqual([peers().includes('peer'), store.state().error], [true, undefined])
    end.abort()
  }).timeout(90_000)

  it('certificates of another authority in the same files count from the next connection on; those that have expired are told as such', async () => {
    const { server, admin, store, peers, end } = await watching()
    await server.renew()
    await until(() => store.state().connected, 15_000)
    await admin.create('third', ['10.244.3.0/24'], published(3))
    await until(() => peers().includes('third'), 6000)
    await server.renew(-1)
    await until(() => /its certificate has expired/.test(store.state().error ?? ''), 15_000)
    assert.deepEqual(peers(), ['peer', 'third'])
    await server.renew()
    await until(() => store.state().connected, 6000)
    end.abort()
  }).timeout(90_000)

  it('a token that is renewed in its file counts at once; one that does not count is told with what is wrong', async () => {
    const server = await kubeServer()
    const admin = administered(server)
    await admin.create('own', ['10.244.1.0/24'])
    const dir = mkdtempSync('/tmp/kube-token-')
    try {
      writeFileSync(join(dir, 'token'), 'old')
      writeFileSync(join(dir, 'kubeconfig'), kubeconfigOf(server.url, server.caFile, 'tokenFile: token'))
      const store = storeOf(join(dir, 'kubeconfig'), 'own')
      await assert.rejects(store.claim(draft('own', 1), CONF, signal), {
        name: 'StoreError',
        message: /401 Unauthorized; the credentials of the kubeconfig .* do not count/,
      })
      writeFileSync(join(dir, 'token'), 'secret-of-the-test\n')
      assert.deepEqual((await store.claim(draft('own', 1), CONF, signal)).subnets, { v4: '10.244.1.0/24' })
      rmSync(join(dir, 'token'))
      await assert.rejects(store.claim(draft('own', 1), CONF, signal), {
        name: 'StoreError',
        message: /Cannot read .*token/,
      })
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  it('a program gives the token, and is asked again when the server refuses it', async () => {
    const server = await kubeServer()
    await administered(server).create('own', ['10.244.1.0/24'])
    const dir = mkdtempSync('/tmp/kube-exec-')
    try {
      const script =
        '#!/bin/sh\necho run >>$0.log\nprintf \'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s"}}\' "$(cat $0.token)"\n'
      writeFileSync(join(dir, 'login'), script)
      chmodSync(join(dir, 'login'), 0o755)
      writeFileSync(join(dir, 'login.token'), 'stale')
      writeFileSync(
        join(dir, 'kubeconfig'),
        kubeconfigOf(
          server.url,
          server.caFile,
          'exec:\n  apiVersion: client.authentication.k8s.io/v1\n  command: ./login',
        ),
      )
      const store = storeOf(join(dir, 'kubeconfig'), 'own')
      await assert.rejects(store.claim(draft('own', 1), CONF, signal), /401 Unauthorized/)
      writeFileSync(join(dir, 'login.token'), 'secret-of-the-test')
      await store.claim(draft('own', 1), CONF, signal)
      await store.claim(draft('own', 1), CONF, signal)
      assert.equal(readFileSync(join(dir, 'login.log'), 'utf8'), 'run\nrun\n')
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  it('a certificate of an unknown authority, one for other names, and a name that nobody knows are told as such', async () => {
    const [server, other] = [await kubeServer(), await kubeServer()]
    const dir = mkdtempSync('/tmp/kube-tls-')
    const told = async (url: string, caFile: string) => {
      writeFileSync(join(dir, 'kubeconfig'), kubeconfigOf(url, caFile, 'token: secret-of-the-test'))
      return storeOf(join(dir, 'kubeconfig'), 'own')
        .claim(draft('own', 1), CONF, signal)
        .then(
          () => 'claimed',
          (cause) => (cause as Error).message,
        )
    }
    try {
      assert.match(
        await told(server.url, other.caFile),
        /does not answer: its certificate is signed by an authority that is not known here/,
      )
      assert.match(
        await told(server.url.replace('127.0.0.1', 'localhost'), server.caFile),
        /its certificate is for other names/,
      )
      assert.match(
        await told('https://nobody.invalid:6443', server.caFile),
        /does not answer: (its name is not known|there is no way to its address)/,
      )
    } finally {
      rmSync(dir, { recursive: true })
    }
  })

  it('a patch that an admission webhook refuses, and a role that misses a verb, are told with the object and what is wanted', async () => {
    const server = await kubeServer()
    await administered(server).create('own', ['10.244.1.0/24'])
    const store = storeOf(server.kubeconfig, 'own')
    server.fault = ({ method }) =>
      method === 'PATCH'
        ? refusal(403, 'Forbidden', 'nodes "own" is forbidden: User "x" cannot patch resource "nodes/status"')
        : undefined
    await assert.rejects(store.claim(draft('own', 1), CONF, signal), {
      name: 'StoreError',
      message:
        /refused PATCH \/api\/v1\/nodes\/own\/status: 403 nodes \\"own\\" is forbidden.*; want a role that allows it/,
    })
    server.fault = ({ method }) =>
      method === 'PATCH' ? refusal(422, 'Invalid', 'admission webhook "guard" denied the request') : undefined
    await assert.rejects(
      store.claim(draft('own', 1), CONF, signal),
      /422 admission webhook \\"guard\\" denied the request/,
    )
  })

  it('lists that are no lists, events that are no objects, and 10 MB of one object end nothing', async () => {
    const { server, admin, peers, end } = await watching()
    server.tell('{"type":"MODIFIED","object":null}')
    server.tell('{"type":"ADDED","object":{"metadata":{}}}')
    for (const line of ['null', '7', '[]', '"text"', '{}']) server.tell(line)
    server.tell('{"type":"WHAT","object":{"metadata":{"name":"peer"}}}')
    server.tell('{"type":"ERROR","object":{"code":500,"message":"oops"}}')
    await admin.create('huge', ['10.244.9.0/24'], { ...published(9), other: 'x'.repeat(10_000_000) })
    await until(() => peers().includes('huge'), 10_000)
    server.fault = ({ url }) => (url.searchParams.has('limit') ? Response.json({ items: 7, metadata: {} }) : undefined)
    server.compact()
    server.cut()
    await Bun.sleep(500)
    assert.deepEqual(peers().toSorted(), ['huge', 'peer'])
    server.fault = undefined
    await admin.remove('huge')
    await until(() => !peers().includes('huge'), 10_000)
    end.abort()
  })
})
