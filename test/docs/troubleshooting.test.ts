// lane: long
// Tests docs/troubleshooting.md: each symptom is made on a real node, and each command prints what the page shows.
import assert from 'node:assert/strict'
import { readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { DIST, type Fixture, isClean, sh, withFixture } from '../support/doctor.ts'
import { until } from '../support/harness.ts'

const PAGE = readFileSync(join(import.meta.dir, '../../docs/troubleshooting.md'), 'utf8')
const LATE = 25_000

/** A symptom by the heading of its section: what makes it, and what ends it. */
interface Symptom {
  readonly title: string
  readonly make: (fixture: Fixture) => Promise<void> | void
  readonly mend: (fixture: Fixture) => Promise<void> | void
}

const OTHER = 'table inet other { chain first { type filter hook forward priority 5; policy drop; }; }'
const aside = ({ node }: Fixture) => join(node.dir, 'aside')
const SYMPTOMS: readonly Symptom[] = [
  {
    title: 'New pods do not start',
    make: (fixture) => renameSync(fixture.lists, aside(fixture)),
    mend: (fixture) => renameSync(aside(fixture), fixture.lists),
  },
  {
    title: 'Pods do not reach pods of other nodes',
    make: ({ node }) => sh(node.ns, `nft '${OTHER}'`),
    mend: ({ node }) => sh(node.ns, 'nft delete table inet other'),
  },
  {
    title: 'The pods of one node are not reached',
    make: ({ node }) => sh(node.ns, 'iptables -A INPUT -p udp --dport 8472 -j DROP'),
    mend: ({ node }) => sh(node.ns, 'iptables -D INPUT -p udp --dport 8472 -j DROP'),
  },
  {
    title: 'Small requests work, large ones hang',
    make: ({ hub }) => sh(hub, 'ip link set dev port2 mtu 1400'),
    mend: ({ hub }) => sh(hub, 'ip link set dev port2 mtu 1500'),
  },
  {
    title: 'A port does not answer',
    make: ({ node }) => sh(node.ns, 'iptables -A INPUT -p tcp --dport 8080 -j DROP'),
    mend: ({ node }) => sh(node.ns, 'iptables -D INPUT -p tcp --dport 8080 -j DROP'),
  },
  {
    title: 'A server sees the address of a node instead of that of a pod',
    make: ({ node }) => sh(node.ns, 'iptables -t nat -A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE'),
    mend: ({ node }) => sh(node.ns, 'iptables -t nat -D POSTROUTING -s 10.244.0.0/16 -j MASQUERADE'),
  },
]

describe('docs/troubleshooting.md', () => {
  it(
    'every symptom that has printed commands is made, and each command prints what the page shows',
    withFixture(async (fixture) => {
      const sections = sectionsOf(PAGE)
      assert.deepEqual(
        [...sections.keys()],
        SYMPTOMS.map(({ title }) => title),
      )
      for (const { title, make, mend } of SYMPTOMS) {
        await make(fixture)
        for (const { command, lines } of sections.get(title) ?? []) {
          let said = ''
          await until(async () => {
            said = await run(fixture, command)
            return isShown(said, lines)
          }, LATE).catch(() =>
            assert.fail(`${title}: ${command} prints\n${said}\nand the page shows\n${lines.join('\n')}`),
          )
        }
        await mend(fixture)
        await isClean(fixture)
      }
    }),
  ).timeout(600_000)
})

/** The commands of each section and the lines that they print. Blocks begin their commands with `# `. */
function sectionsOf(page: string): Map<string, { readonly command: string; readonly lines: string[] }[]> {
  const found: ReturnType<typeof sectionsOf> = new Map()
  for (const section of page.split(/^## /m).slice(1)) {
    const title = section.slice(0, section.indexOf('\n'))
    const shown = [...section.matchAll(/^```text\n(.*?)^```$/gms)].flatMap(([, block = '']) =>
      block
        .split(/^# (?=plumb )/m)
        .slice(1)
        .map((one) => {
          const [command = '', ...lines] = one.trimEnd().split('\n')
          return { command, lines: lines.filter((line) => line.trim() !== '') }
        }),
    )
    if (shown.length > 0) found.set(title, shown)
  }
  return found
}

async function run({ node, bin, lists, pod }: Fixture, command: string): Promise<string> {
  const places = {
    status: ['--socket', join(node.dir, 'agent.sock')],
    leases: ['--socket', join(node.dir, 'agent.sock')],
    trace: ['--socket', join(node.dir, 'agent.sock')],
    doctor: [
      ...['--socket', join(node.dir, 'agent.sock'), '--subnet-file', join(node.dir, 'subnet.env')],
      ...['--conf-dir', lists, '--bin-dir', bin],
    ],
  }
  const [, name = '', ...words] = command.split(' ')
  const given = words.map((word) => (word === 'default/web' ? pod.path : word))
  const { stdout, stderr } = await node.ns.exec([
    join(DIST, 'plumb'),
    name,
    ...given,
    ...(places[name as keyof typeof places] ?? []),
  ])
  return `${stdout}${stderr}`.replaceAll(pod.path, 'default/web')
}

// The page shows some lines of the output, in its order.
function isShown(said: string, lines: readonly string[]): boolean {
  const all = said.split('\n').map(faceOf)
  let from = 0
  for (const line of lines) {
    if (line.trim() === '…') continue
    const at = all.indexOf(faceOf(line), from)
    if (at < 0) return false
    from = at + 1
  }
  return true
}

// Numbers, addresses and folders differ from node to node.
function faceOf(line: string): string {
  return line
    .replace(/\b[0-9a-f]{1,4}:[0-9a-f:]*:[0-9a-f:]*/g, 'N')
    .replace(/\bveth[0-9a-f]+/g, 'veth')
    .replace(/\/\S*\/(?=[\w.-]+)/g, '')
    .replace(/\d+(?:[.:]\d+)*/g, 'N')
    .replace(/\s+/g, ' ')
    .trim()
}
