// lane: netns
// Tests agent/page: what a browser beside a real agent shows when the cable of another node is pulled.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { present } from '../../../scripts/packages.ts'
import { until } from '../../support/harness.ts'
import { type Agent, type Cluster, fileStore, inCluster, type Node } from '../../support/nodes.ts'
import { skip } from '../../support/skip.ts'
import { CHROMIUM, launch, text } from '../../support/status-page.ts'

/** The agents take their subnets from below those that the test gives to nodes that nobody is. */
const NETWORK = { Network: '10.244.0.0/16', SubnetMax: '10.244.99.0', Backend: { Type: 'vxlan' } }
const LATE = 30_000
/** More peers than there are cards for: then each is a cell. Nobody has their addresses. */
const OTHERS = 13
/** How long after the agent the page may show the same. Milliseconds. */
const SOON = 3000

describe('the page beside a real agent', () => {
  before(function () {
    if (!present(CHROMIUM)) skip(this, `no ${CHROMIUM}: npm run setup installs it where it can be had`)
  })

  it(
    'the cell of a node whose cable is pulled is red within 3 s after the agent knows, and green again',
    inCluster(
      2,
      (cluster) => [...fileStore(cluster, NETWORK), '--probe-interval=1'],
      async (cluster, test) => {
        test.timeout(120_000)
        const { hub, nodes } = cluster
        const [one, two] = nodes as [Node, Node]
        const [agent, other] = [one.agent(), two.agent()] as [Agent, Agent]
        await agent.ready(LATE)
        await other.ready(LATE)
        othersInStore(cluster)
        const state = async () => {
          const peers = (await agent.status())?.peers ?? []
          const seen = peers.find(({ node }) => node === 'n2')?.probe?.state
          return peers.length === OTHERS + 1 ? seen : `${peers.length} peers, n2 ${JSON.stringify(seen)}`
        }
        const untilState = (wanted: string) =>
          until(async () => {
            assert.equal(await state(), wanted)
            return true
          }, LATE)
        await untilState('answers')
        const browser = await beside(one)
        try {
          const page = await browser.newPage()
          await page.goto('http://127.0.0.1:9469/#/peers?group=none&sel=n2')
          await until(async () => (await colourOf(page)) === 'good', LATE)
          const shows = async (wanted: 'silent' | 'answers') => {
            await untilState(wanted)
            const known = performance.now()
            await until(async () => (await colourOf(page)) === (wanted === 'silent' ? 'bad' : 'good'), LATE)
            return performance.now() - known
          }
          await hub.ip('link', 'set', 'port2', 'down')
          const lost = await shows('silent')
          assert.match(
            await text(page, '#cell'),
            /^n2: programmed, but no answer: \d+ of \d+ probes lost, since \d\d:\d\d$/,
          )
          await hub.ip('link', 'set', 'port2', 'up')
          const back = await shows('answers')
          assert.match(await text(page, '#cell'), /^n2: reachable, /)
          assert.ok(lost <= SOON && back <= SOON, `red after ${lost} ms, green after ${back} ms`)
        } finally {
          await browser.close()
        }
      },
    ),
  )
})

// A browser in the namespace of a node, as with a page that is reached by `ssh -L`.
function beside({ dir, ns }: Node): Promise<Browser> {
  const program = join(dir, 'browser')
  writeFileSync(program, `#!/bin/sh\nexec nsenter --net=${ns.path} -- ${CHROMIUM} "$@"\n`, { mode: 0o755 })
  return launch(program)
}

function othersInStore({ dir }: Cluster): void {
  const subnets = join(dir, 'store/subnets')
  mkdirSync(subnets, { recursive: true })
  for (let n = 1; n <= OTHERS; n++) {
    const data = { VNI: 1, VtepMAC: `02:00:00:01:00:${n.toString(16).padStart(2, '0')}` }
    const lease = { PublicIP: `172.31.0.${n}`, PublicIPv6: null, BackendType: 'vxlan', BackendData: data }
    writeFileSync(join(subnets, `10.244.${100 + n}.0-24`), JSON.stringify(lease))
  }
}

// What colour the selected cell has: that of a lost peer, or one of the reachable.
function colourOf(page: Page): Promise<string> {
  return page.evaluate(`(() => {
    const [cell, canvas] = [document.querySelector('#cell'), document.querySelector('[role=grid] canvas')]
    if (!cell || !canvas) return 'nothing'
    const [at, from, scale] = [cell.getBoundingClientRect(), canvas.getBoundingClientRect(), devicePixelRatio]
    const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d')
    pen.drawImage(canvas, 0, 0)
    const [x, y] = [(at.x - from.x + 2) * scale, (at.y - from.y + 2) * scale].map(Math.round)
    const [r, g, b] = pen.getImageData(x, y, 1, 1).data
    const seen = '#' + [r, g, b].map((n) => n.toString(16).padStart(2, '0')).join('')
    const style = getComputedStyle(canvas)
    const named = (name) => style.getPropertyValue('--' + name).trim()
    if (seen === named('cell-silent')) return 'bad'
    return [0, 1, 2, 3, 4, 5].some((i) => seen === named('rtt-' + i)) ? 'good' : seen
  })()`)
}
