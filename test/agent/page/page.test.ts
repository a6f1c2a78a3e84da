// lane: netns
// Tests agent/page: the status page.
import assert from 'node:assert/strict'
import type { Page } from 'playwright-core'
import { type Service, type Slice, serviceOf, sliceOf } from '../../../agent/cluster/services.ts'
import { NoAnswerError } from '../../../agent/node/own-program.ts'
import { type Comparison, type Drafts, draftsOf } from '../../../agent/policy/comparison.ts'
import type { PodDetail } from '../../../agent/policy/view.ts'
import { atOnce } from '../../../agent/scheduler/pieces.ts'
import { viewOf } from '../../../agent/services/view.ts'
import type { PodView } from '../../../agent/state/details.ts'
import type { Finding, Peer, PolicyStatus } from '../../../agent/state/status.ts'
import { parseIp } from '../../../lib/text/ip.ts'
import { until } from '../../support/harness.ts'
import { peers } from '../../support/scripted.ts'
import { rowsOf, statusPage, text } from '../../support/status-page.ts'

const SILENT = { probe: { state: 'silent', sent: 10, lost: 6, ms: 1 } } as const
const FINDING: Finding = {
  code: 'DR17',
  title: 'tunnel blocked',
  severity: 'error',
  text: 'node-2 answers, its tunnel does not: its VXLAN packets are dropped on the way',
  commands: ['ufw allow 8472/udp'],
}

/** Peers in three zones. Those with the numbers in `silent` do not answer. */
function zoned(count: number, silent: readonly number[]): Peer[] {
  return peers(count).map((peer, i) => ({
    ...peer,
    zone: 'abc'[i % 3] as string,
    ...(silent.includes(i + 1) ? SILENT : {}),
  }))
}

describe('the status page', () => {
  const served = statusPage(10_261, { peers: peers(3) })
  const sentence = (page: Page) => text(page, '.sentence')

  it('the first glance names the two that are lost, at 3, 100, 1,000 and 5,000 peers', async () => {
    const page = await served.visit('', { viewport: { width: 1280, height: 900 } })
    for (const count of [3, 100, 1000, 5000]) {
      served.source.set({
        peers: zoned(count, [2, 3]),
        degraded: ['no answer over the overlay from node-2 and node-3'],
      })
      const words = new RegExp(`^node-0 is degraded: node-2 and node-3 do not answer since .* \\(${count} peers\\)$`)
      await until(async () => words.test(await sentence(page)), 20_000)
      await page.evaluate("location.hash = '#/'")
      await until(async () => (await page.locator('.worst li').count()) === 2)
      assert.match(await text(page, '.counts'), new RegExp(`${count - 2} reachable[\\s\\S]*2 do not answer`))
      await page.evaluate("location.hash = '#/peers'")
      await until(async () => (await page.locator('tbody tr').count()) === Math.min(count, 50))
      const rows = await rowsOf(page, 'main')
      assert.deepEqual(
        rows.slice(0, 2).map(([name]) => name),
        ['node-2', 'node-3'],
      )
      const drawn = count === 3 ? 'main .cards button.bad' : 'main [role=grid] canvas'
      assert.equal(await page.locator(drawn).count(), count === 3 ? 2 : 1)
      if (count > 3) await until(async () => (await redCells(page)) >= 2)
    }
  })
  it('the cause that the doctor found stands before what follows from it, with the command to copy', async () => {
    served.source.set({
      peers: zoned(3, [2]),
      degraded: ['no answer over the overlay from node-2', `${FINDING.text}; run ${FINDING.commands[0]}`],
      findings: [FINDING],
    })
    const page = await served.visit()
    assert.equal(await sentence(page), `node-0 is degraded: ${FINDING.text}`)
    const problems = await page.locator('.problems li').allInnerTexts()
    assert.match(problems[0] ?? '', /^✕ node-2 answers[\s\S]*DR17\s+ufw allow 8472\/udp\s+Copy$/)
    assert.deepEqual(problems.slice(1), ['no answer over the overlay from node-2'])
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.click('.problems .command button')
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), 'ufw allow 8472/udp')
  })
  it('changes as the agent does, without a reload', async () => {
    const page = await served.visit()
    await page.evaluate('window.still = true')
    assert.deepEqual([await text(page, '.pill'), await page.title()], ['✓ Ready', 'node-0 · plumb'])
    served.source.set({
      peers: peers(5),
      ready: false,
      reasons: ['2 routes are missing'],
      kinds: { route: { wanted: 10, programmed: 8, repaired: 5 } },
    })
    await until(async () => (await text(page, '.pill')) === '✕ Not ready')
    assert.deepEqual(
      [await sentence(page), await page.title()],
      ['node-0 is not ready: 2 routes are missing', 'not ready · node-0 · plumb'],
    )
    assert.match(await text(page, '.own'), /Kernel objects\s+10\s+2 not as wanted, 5 repaired/)
    //
    served.source.set({ ready: true, reasons: [], degraded: ['another program undoes a route'] })
    await until(async () => (await text(page, '.pill')) === '▲ Degraded')
    assert.equal(await sentence(page), 'node-0 is degraded: another program undoes a route')
    served.source.set({ degraded: [], kinds: { route: { wanted: 10, programmed: 10, repaired: 7 } } })
    await until(async () => (await sentence(page)) === 'node-0 is ready: all 5 peers answer')
    assert.equal(await page.evaluate('window.still'), true)
  })
  it('says that the connection is lost, and goes on by itself when the agent is back', async () => {
    const page = await served.visit()
    await page.evaluate('window.still = true')
    served.stop()
    await page.waitForSelector('.lost')
    assert.match(
      await text(page, '.lost'),
      /^Connection lost \d+ s ago\. What you see is as of \d\d:\d\d; asking again…$/,
    )
    await until(async () => (await page.textContent('.voice')) === 'The connection to the agent is lost', 15_000)
    assert.equal(await text(page, 'h1'), 'node-0')
    served.source.set({ node: 'node-back', started: Date.now() })
    await served.start()
    await until(async () => (await page.textContent('h1')) === 'node-back', 20_000)
    assert.equal(await page.locator('.lost').count(), 0)
    assert.equal(await page.evaluate('window.still'), true)
    // While nobody listens a browser says so on its console.
    served.visits[0]?.complaints.splice(0)
  })
  it('loads itself again when the agent is another version', async () => {
    const page = await served.visit()
    await page.evaluate('window.still = true')
    served.source.set({ version: '9.9.9' })
    await until(async () => (await page.evaluate('window.still').catch(() => true)) === undefined, 15_000)
    await until(async () => /plumb 9\.9\.9/.test(await text(page, '.who')))
  })
  it('a peer that cannot be reached is red and first, and its page has the reason and its objects', async () => {
    served.source.set({
      peers: peers(10).map((peer, i) =>
        i === 6 ? { ...peer, backend: 'host-gw', problem: '198.51.0.7 is not on a link of this node' } : peer,
      ),
    })
    const route = 'route 10.64.7.0/24 via 198.51.0.7 dev eth0 proto 133'
    let found: { found?: string } = {}
    Object.assign(served.source, {
      peer: async (key: string) =>
        key === '10.64.7.0-24&fd00:64:7::-64' ? { objects: [{ wanted: route, ...found }] } : undefined,
    })
    const page = await served.visit('#/peers')
    const bad = page.locator('.cards button.bad')
    await bad.waitFor()
    assert.equal(await bad.count(), 1)
    assert.match((await bad.textContent()) ?? '', /node-7.*unreachable: 198\.51\.0\.7 is not on a link of this node$/)
    assert.equal((await rowsOf(page, 'main'))[0]?.[0], 'node-7')
    await bad.click()
    await page.waitForSelector('.objects')
    assert.match(await text(page, '.peer'), /node-7[\s\S]*198\.51\.0\.7 is not on a link of this node/)
    assert.deepEqual(await rowsOf(page, '.objects'), [[route, 'is missing']])
    assert.equal(await text(page, '.objects .title p'), '1 not as wanted')
    found = { found: route }
    await until(async () => (await text(page, '.objects .title p')) === 'all as wanted', 20_000)
    assert.deepEqual(await rowsOf(page, '.objects'), [[route, route]])
    assert.match(await text(page, '.ask'), /plumb trace node-0 node-7/)
    await page.goBack()
    await page.waitForSelector('.cards')
  })
  it('has the pods of the node: a new one at once, their traffic, their policies, and who may reach one', async () => {
    const pod = (n: number, change: Partial<PodView> = {}): PodView => ({
      pod: `shop/cart-${n}`,
      container: `c${n}`.repeat(20),
      ifname: 'eth0',
      addresses: [parseIp(`10.64.0.${n}`)],
      link: `veth${n}`,
      isUp: true,
      sent: 1000,
      received: 1000,
      dropped: 0,
      hostPorts: n === 2 ? ['80/tcp'] : [],
      ingress: ['shop/allow-web'],
      egress: [],
      isClosed: false,
      ...change,
    })
    let all = [pod(2)]
    const rules: PodDetail = {
      pod: 'shop/cart-2',
      addresses: [parseIp('10.64.0.2')],
      isClosed: false,
      ingress: {
        isolatedBy: ['shop/allow-web'],
        rules: [
          {
            rule: 'shop/allow-web ingress[0]',
            action: 'Accept',
            peers: ['pods app=web'],
            ports: ['TCP 80'],
            pods: ['shop/web-1'],
          },
        ],
      },
      egress: { isolatedBy: [], rules: [] },
    }
    Object.assign(served.source, {
      pods: async () => all,
      pod: (name: string) => (name === 'shop/cart-2' ? rules : undefined),
    })
    served.source.set({ policy: { ...NO_POLICY, pods: 2 } })
    const page = await served.visit('#/pods')
    await until(async () => (await page.locator('tbody tr').count()) === 1)
    all = [pod(2, { received: 200_000 }), pod(3, { isUp: false, isClosed: true })]
    await until(async () => (await page.locator('tbody tr').count()) === 2)
    assert.equal((await rowsOf(page, 'main'))[0]?.[0], 'shop/cart-3')
    await until(async () => {
      all = all.map((one) => ({ ...one, received: (one.received ?? 0) + 50_000 }))
      return /(k|M)bit\/s/.test((await rowsOf(page, 'main'))[1]?.[3] ?? '')
    })
    all = [pod(2)]
    await until(async () => (await page.locator('tbody tr').count()) === 1)
    await page.click('tbody tr button')
    await page.waitForSelector('.ingress')
    assert.match(await text(page, '.ingress'), /Who may reach it\s+isolated by shop\/allow-web/)
    assert.deepEqual(await rowsOf(page, '.ingress'), [
      ['shop/allow-web ingress[0]', 'Accept', 'pods app=web', 'TCP 80', 'shop/web-1'],
    ])
    assert.match(await text(page, '.egress'), /Everybody: no policy selects it/)
    assert.match(await text(page, '.pod'), /Host ports\s+80\/tcp/)
  })
  it('has which namespaces reach which, and behind a cell the pods and what decides', async () => {
    Object.assign(served.source, {
      policyMatrix: () => ({ namespaces: ['shop', 'web'], rows: ['op', '-c'] }),
      policyCell: (from: string, to: string) => ({
        pairs: [
          {
            from: `${from}/a`,
            to: `${to}/b`,
            ports: [
              { ports: 'TCP 80', passes: true, reason: 'web/allow ingress[0] allows it' },
              { ports: 'TCP 1-79, 81-65535', passes: false, reason: 'web/allow isolates web/b' },
            ],
          },
        ],
        more: 3,
      }),
    })
    served.source.set({ policy: { ...NO_POLICY, pods: 2 } })
    const page = await served.visit('#/policy')
    await until(async () => (await page.locator('.matrix tbody tr').count()) === 2)
    assert.deepEqual(await page.locator('.matrix .cell').allTextContents(), ['✓', '◐', '✕'])
    await page.click('[aria-label="from shop to web: in part"]')
    await until(async () => (await page.locator('.pairs tbody tr').count()) === 2)
    assert.deepEqual(await rowsOf(page, '.pairs'), [
      ['shop/a', 'web/b', 'TCP 80', '✓ passes', 'web/allow ingress[0] allows it'],
      ['shop/a', 'web/b', 'TCP 1-79, 81-65535', '✕ refused', 'web/allow isolates web/b'],
    ])
    assert.match(await text(page, '.pairs'), /3 more pairs[\s\S]*plumb policy test shop\/a web\/b 80/)
    await page.goBack()
    await page.waitForSelector('.matrix')
  })
  it('says why the agent has no answer about policies, and keeps the last one', async () => {
    let isDown = true
    const matrix = () => {
      if (isDown) throw new NoAnswerError('its process was killed by SIGKILL', 'want more memory')
      return { namespaces: ['shop', 'web'], rows: ['op', '-c'] }
    }
    Object.assign(served.source, { policyMatrix: matrix })
    served.source.set({ policy: { ...NO_POLICY, pods: 2 } })
    const page = await served.visit('#/policy')
    const said = /Cannot compute the answer: its process was killed by SIGKILL; want more memory/
    await page.waitForSelector('.policy .warn')
    assert.match(await text(page, '.policy'), said)
    isDown = false
    served.source.set({ policy: { ...NO_POLICY, pods: 3 } })
    await page.waitForSelector('.matrix')
    assert.equal(await page.locator('.policy .warn').count(), 0)
    isDown = true
    served.source.set({ policy: { ...NO_POLICY, pods: 4 } })
    await page.waitForSelector('.policy .warn')
    assert.equal(await page.locator('.matrix tbody tr').count(), 2)
    served.visits[0]?.complaints.splice(0)
  })
  it('says what policies would change that nobody has applied, and why a text is none', async () => {
    const asked: Drafts[] = []
    Object.assign(served.source, {
      policyMatrix: () => ({ namespaces: ['shop', 'web'], rows: ['op', '-c'] }),
      policyComparison: (given: string) => {
        asked.push(atOnce(draftsOf(given)))
        return {
          drafts: [{ name: 'shop/guard', isKnown: false }],
          namespaces: [{ from: 'shop', to: 'web', opened: 0, closed: 7 }],
          pairs: [
            {
              from: 'shop/a',
              to: 'web/b',
              ports: [{ ports: 'TCP 80', passes: false, reason: 'web/guard isolates', before: 'no policy selects it' }],
            },
          ],
          more: 6,
          isolation: [{ pod: 'web/b', side: 'ingress', isIsolated: true }],
        } satisfies Comparison
      },
    })
    served.source.set({ policy: { ...NO_POLICY, pods: 2 } })
    const page = await served.visit('#/policy')
    const field = page.getByLabel('NetworkPolicies that are not in the cluster yet, as YAML or JSON')
    assert.equal(await page.getByRole('button', { name: 'Compare' }).isDisabled(), true)
    // Keys of the page are text in a field.
    await field.fill('kind: NetworkPolicy\nmetadata: {name: guard, namespace: shöp}\nspec: {podSelector: {}}')
    await page.getByRole('button', { name: 'Compare' }).click()
    await page.waitForSelector('.drafts .warn')
    assert.match(
      await text(page, '.drafts .warn'),
      /NetworkPolicy: metadata\.namespace "shöp": want lower-case letters/,
    )
    assert.deepEqual(served.visits[0]?.complaints.splice(0), [
      'Failed to load resource: the server responded with a status of 400 (Bad Request)',
    ])
    const policy = 'kind: NetworkPolicy\nmetadata: {name: guard, namespace: shop}\nspec: {podSelector: {}}'
    await field.fill(Array.from({ length: 100 }, (_, i) => policy.replace('guard', `guard-${i}`)).join('\n---\n'))
    await page.getByRole('button', { name: 'Compare' }).click()
    await page.waitForSelector('.drafts table')
    assert.deepEqual([asked.length, asked[0]?.policies.length], [1, 100])
    assert.match(
      await text(page, '.drafts'),
      /web\/b is isolated for ingress then[\s\S]*From shop to web: 7 pairs of pods reach fewer/,
    )
    assert.deepEqual(await rowsOf(page, '.drafts'), [
      ['shop/a', 'web/b', 'TCP 80', '✕ refused', 'web/guard isolates', 'no policy selects it'],
    ])
    assert.match(await text(page, '.drafts'), /6 more pairs/)
  })
  it('has what has happened, the newest first, and finds kinds of it', async () => {
    const page = await served.visit('#/events')
    served.source.set({ peers: zoned(3, [2]), degraded: ['no answer over the overlay from node-2'] })
    await until(async () => (await page.locator('tbody tr').count()) === 4)
    served.source.set({ peers: zoned(3, []), degraded: [] })
    await until(async () => (await page.locator('tbody tr').count()) === 6)
    const kinds = (await rowsOf(page, 'main')).map(([, kind, what]) => `${kind} ${what}`)
    assert.deepEqual(kinds.slice(0, 4), [
      'state ✓ node-0 is ready',
      'peer ✓ node-2: answers again',
      'state ▲ node-0 is degraded: no answer over the overlay from node-2',
      'peer ✕ node-2: does not answer',
    ])
    await page.fill('main input[type=search]', 'kind:peer tone:bad')
    await until(async () => (await text(page, '.found')) === '1 of 6 entries')
    assert.match((await rowsOf(page, 'main'))[0]?.join(' ') ?? '', /node-2: does not answer/)
  })
  it('has a table of Services with their addresses, their endpoints, and why one is left out; a search finds them', async () => {
    const service = (name: string, ip: string) =>
      serviceOf({
        metadata: { namespace: 'shop', name },
        spec: { type: 'NodePort', clusterIPs: [ip], ports: [{ port: 80, nodePort: 30_080 }] },
      }) as Service
    const endpoint = (ip: string, ready: boolean) => ({ addresses: [ip], nodeName: 'node-0', conditions: { ready } })
    const slice = sliceOf({
      metadata: { namespace: 'shop', name: 'cart', labels: { 'kubernetes.io/service-name': 'cart' } },
      addressType: 'IPv4',
      ports: [{ name: '', port: 8080 }],
      endpoints: [endpoint('10.64.0.2', true), endpoint('10.64.0.3', false)],
    }) as Slice
    const views = [
      viewOf(service('cart', '10.96.0.1'), [slice], { name: 'node-0' }, new Set([parseIp('10.96.0.1')])),
      viewOf(service('empty', '10.96.0.2'), [], { name: 'node-0' }),
    ]
    const counts = {
      services: 2,
      frontends: 4,
      endpoints: 2,
      forgotten: 0,
      sync: { took: { count: 0, sum: 0, buckets: [] }, services: 0, slices: 0 },
    }
    const programming = (count: number) => ({ count, sum: 0, buckets: [count - 1, count] })
    Object.assign(served.source, { services: () => views })
    served.source.set({ services: { ...counts, programming: programming(0) } })
    const page = await served.visit('#/services')
    await until(async () => (await page.locator('tbody tr').count()) === 2)
    assert.deepEqual(await rowsOf(page, 'main'), [
      ['shop/empty', '10.96.0.2:80/TCP, node port 30080', '0, 0 of this node', ''],
      [
        'shop/cart',
        'BGP announces 10.96.0.1',
        '10.96.0.1:80/TCP, node port 30080',
        '1, 1 of this node',
        'node-0 1',
        '10.64.0.3:8080: it is not ready',
      ],
    ])
    assert.equal(await page.locator('tbody tr.bad').count(), 1)
    await page.fill('main input[type=search]', '10.64.0.3')
    await until(async () => (await text(page, '.found')) === '1 of 2 ports')
    await page.fill('main input[type=search]', 'state:bad')
    await until(async () => (await rowsOf(page, 'main'))[0]?.[0] === 'shop/empty')
    // All Services go, and the table with them.
    Object.assign(served.source, { services: () => [] })
    served.source.set({ services: { ...counts, services: 0, programming: programming(1) } })
    await until(async () => (await page.locator('.empty').allTextContents()).includes('There are no Services'))
    served.source.set({ services: { ...counts, services: 0, programming: programming(10) } })
    await until(async () => (await text(page, '.services .title')).includes('half within 250 ms, 99 % within 500 ms'))
  })
  it('has a table of the sessions of BGP: those that are away first, with the reason; a search finds them', async () => {
    const session = { kind: 'peer', asn: 65_000, state: 'Established', received: 2, sent: 1 } as const
    const address = (ip: string) => ({ name: ip, address: parseIp(ip) })
    const bgp = {
      asn: 64_512,
      pid: 4711,
      restarts: 0,
      announced: 1,
      sessions: [
        { ...session, ...address('192.0.2.1'), name: 'tor', since: Date.now() - 180_000 },
        { ...session, ...address('192.0.2.2'), state: 'Active', reason: 'Socket: Connection refused', received: 0 },
      ],
    }
    served.source.set({ bgp })
    const page = await served.visit('#/bgp')
    await until(async () => (await page.locator('tbody tr').count()) === 2)
    assert.equal(await text(page, '.bgp .title p'), 'AS 64512, prefixes announced: 1, 1 of 2 established')
    assert.deepEqual(await rowsOf(page, 'main'), [
      ['192.0.2.2', '192.0.2.2', '65000', '0 in, 1 out', 'Active: Socket: Connection refused'],
      ['tor', '192.0.2.1', '65000', '2 in, 1 out', 'Established for 3 min'],
    ])
    await page.fill('main input[type=search]', 'refused')
    await until(async () => (await text(page, '.found')) === '1 of 2 sessions')
    const { pid: _, ...ended } = bgp
    served.source.set({ bgp: { ...ended, sessions: [] } })
    await until(async () => (await text(page, '.bgp .title p')).endsWith('BIRD does not run'))
    assert.equal(await page.textContent('.empty'), 'There are no sessions')
  })
})

const NO_POLICY: PolicyStatus = {
  policies: 1,
  clusterPolicies: 0,
  pods: 0,
  selected: { ingress: 1, egress: 0 },
  closed: 0,
  refused: 0,
  steps: { count: 1, sum: 0, buckets: [] },
}

/** How many cells of the grid have the colour of a peer that does not answer. */
async function redCells(page: Page): Promise<number> {
  return (await page.evaluate(`(() => {
    const canvas = document.querySelector('[role=grid] canvas')
    // Reading the page's own canvas again and again would slow it down, and the browser says so.
    const probe = document.createElement('canvas').getContext('2d')
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d')
    copy.drawImage(canvas, 0, 0)
    probe.fillStyle = getComputedStyle(canvas).getPropertyValue('--cell-silent').trim()
    probe.fillRect(0, 0, 1, 1)
    const [r, g, b] = probe.getImageData(0, 0, 1, 1).data
    const { data, width } = copy.getImageData(0, 0, canvas.width, canvas.height)
    const corners = new Set()
    for (let i = 0; i < data.length; i += 4) {
      const isRed = (at) => data[at] === r && data[at + 1] === g && data[at + 2] === b
      if (isRed(i) && !isRed(i - 4) && !isRed(i - 4 * width)) corners.add(i)
    }
    return corners.size
  })()`)) as number
}
