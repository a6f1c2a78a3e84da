// lane: quick
// Tests agent/policy, agent/services and agent/bgp by the files of test/scenarios: objects in, wanted state out.
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'
import { parseIp } from '../../lib/text/ip.ts'
import { check } from '../../scripts/prose.ts'
import { bgp } from '../support/scenarios/bgp.ts'
import { firstMiss } from '../support/scenarios/comparison.ts'
import { Rules } from '../support/scenarios/nft-rules.ts'
import { policy } from '../support/scenarios/policy.ts'
import { runScenario, type Subject } from '../support/scenarios/run.ts'
import { parseScenario, ScenarioError } from '../support/scenarios/scenario.ts'
import { services } from '../support/scenarios/services.ts'

const ROOT = join(import.meta.dir, '../..')
const SUBJECTS: Readonly<Record<string, Subject>> = { policy, services, bgp }
/** The wanted sections are written as they are now. */
const isWriting = process.env['PLUMB_SCENARIOS'] === 'write'

for (const [name, subject] of Object.entries(SUBJECTS))
  describe(`scenarios of ${name}`, () => {
    for (const file of [...new Glob(`test/scenarios/${name}/*.txtar`).scanSync({ cwd: ROOT })].sort()) {
      const text = readFileSync(join(ROOT, file), 'utf8')
      it(`${file.slice('test/scenarios/'.length)}: ${titleOf(file, text)}`, async () => {
        try {
          const now = await runScenario(file, text, subject, isWriting)
          if (now !== text) writeFileSync(join(ROOT, file), now)
        } catch (cause) {
          if (!(cause instanceof ScenarioError)) throw cause
          const command = `PLUMB_SCENARIOS=write npm test -- quick/scenarios --grep ${file.slice('test/scenarios/'.length)}`
          assert.fail(`${cause.message}\nIf the agent is right, write its text and read the difference: ${command}`)
        }
      })
    }
  })

function titleOf(file: string, text: string): string {
  try {
    return parseScenario(file, text).title
  } catch {
    // Running it tells what is wrong.
    return 'it cannot be read'
  }
}

describe('the runner of scenarios', () => {
  const OBJECTS = `-- objects.yaml --
kind: Pod
metadata: { namespace: x, name: a }
spec: { nodeName: n1 }
status: { podIP: 10.244.1.2 }
---
kind: NetworkPolicy
metadata: { namespace: x, name: deny }
spec: { podSelector: {} }
`
  const WHOLE = `What it holds.\n\n${OBJECTS}-- verdicts --\n10.0.0.1 -> x/a TCP 80: refused\n`
  const says = async (text: string, subject: Subject = policy) => {
    const failed = await runScenario('f.txtar', text, subject).then(
      () => undefined,
      (cause: Error) => cause,
    )
    assert.ok(failed === undefined || failed instanceof ScenarioError, String(failed?.stack))
    return failed?.message ?? 'passes'
  }

  it('a wrong line is reported with file and line, and the difference', async () => {
    assert.equal(await says(WHOLE), 'passes')
    assert.equal(
      await says(`${WHOLE}x/a -> 10.0.0.1 TCP 80: refused\n`),
      `f.txtar:14: "verdicts" differs (- is wanted, + is what there is):
    10.0.0.1 -> x/a TCP 80: refused
  - x/a -> 10.0.0.1 TCP 80: refused
  + x/a -> 10.0.0.1 TCP 80: allowed`,
    )
  })

  it('the difference can be written, and the rest of the file stays', async () => {
    const wrong = WHOLE.replace('80: refused', '80: allowed')
    assert.equal(await runScenario('f.txtar', wrong, policy, true), WHOLE)
    assert.equal(await runScenario('f.txtar', WHOLE, policy, true), WHOLE)
  })

  it('rules of nft that do not do what the objects say fail every verdict, whatever is wanted', () => {
    const packet = { source: parseIp('10.0.0.1'), destination: parseIp('10.0.0.2'), protocol: 'tcp', port: 80 }
    const chain = (...rules: readonly string[]) => [
      'table inet t {',
      '  set s { type ipv4_addr; }',
      '  chain a {',
      '    type filter hook forward priority filter; policy accept;',
      ...rules.map((rule) => `    ${rule}`),
      '  }',
      '}',
      'add element inet t s { 10.0.0.1 }',
    ]
    const passes = (...rules: readonly string[]) => new Rules(chain(...rules)).passes('forward', packet)
    assert.equal(passes('ip saddr @s tcp dport 80 drop'), false)
    assert.equal(passes('ip saddr @s udp dport 80 drop', 'ip daddr @s drop', 'ip saddr @s tcp dport 81-90 drop'), true)
    assert.equal(passes('ip saddr @s accept', 'drop'), true)
    assert.throws(() => passes('ip ttl 3 drop'), /^RangeError: Cannot evaluate the rule of nft: ip ttl 3 drop$/)
    assert.throws(() => passes('ip saddr @other drop'), /^RangeError: There is no set other/)
  })

  const wrong: Readonly<Record<string, readonly [text: string, says: string]>> = {
    'an empty file': ['', 'f.txtar:1: the scenario is empty'],
    'a file without sections': ['Words.\n', 'f.txtar:1: there is no section; want a line such as "-- objects.yaml --"'],
    'a file without a first paragraph': [OBJECTS, 'f.txtar:1: there is no first paragraph; want one that says'],
    'a file without a wanted section': [`T.\n\n${OBJECTS}`, 'f.txtar:4: nothing is wanted here; want one of verdicts'],
    'a step without a wanted section': [
      `${WHOLE}-- then: delete --\nPod x/a\n`,
      'f.txtar:15: nothing is wanted here; want one of verdicts',
    ],
    'a wanted section before anything is given': [
      'T.\n-- verdicts --\nx\n',
      'f.txtar:2: "verdicts" is wanted before anything is given',
    ],
    'a wrong name of a section': [
      `${WHOLE}-- verdict --\nx\n`,
      'f.txtar:14: there is no section "verdict" here; want objects.yaml, settings.yaml,',
    ],
    'a name without its blanks': [`${WHOLE}--verdicts--\n`, 'f.txtar:14: cannot read "--verdicts--": want a line'],
    'an empty section': [`${WHOLE}-- problems --\n\n`, 'f.txtar:14: the section "problems" is empty'],
    'a wrong verdict': [
      `${WHOLE}x/a -> x/b TCP 80: perhaps\n`,
      'f.txtar:14: cannot read "x/a -> x/b TCP 80: perhaps": want a line such as "x/a -> y/b TCP 80: allowed"',
    ],
    'a pod that is not there': [
      `${WHOLE}x/a -> x/b TCP 80: allowed\n`,
      'f.txtar:14: There is no pod x/b with a network',
    ],
    'an object that is not there': [
      `${WHOLE}-- then: delete --\nPod x/b\n-- problems --\nnone\n`,
      'f.txtar:15: there is no object "Pod x/b" to delete; there are Pod x/a, NetworkPolicy x/deny',
    ],
    'an unknown key of an object': [
      WHOLE.replace('nodeName', 'node'),
      'f.txtar:6: nothing reads the key "node" of Pod; want nodeName,',
    ],
    'an unknown key of a policy, which no section "problems" names': [
      WHOLE.replace('podSelector', 'podSelectors'),
      'f.txtar:3: the agent has problems here that no section "problems" names:\nobjects.yaml: NetworkPolicy x/deny: spec:',
    ],
    'a wrong address of ADD': [
      `${WHOLE}-- then: ADD --\nx/a 10.244.1.2\nx/b 10.244.1\n-- verdicts --\n10.0.0.1 -> x/a TCP 80: refused\n`,
      'f.txtar:16: "10.244.1": want an IP address',
    ],
    'a wrong subnet of a Node': [
      WHOLE.replace(
        '-- verdicts',
        '---\nkind: Node\nmetadata: { name: n1 }\nspec: { podCIDR: 10.244.1/24 }\n-- verdicts',
      ),
      'f.txtar:17: "10.244.1/24": want an address',
    ],
    'an unknown setting': [
      WHOLE.replace('-- verdicts', '-- settings.yaml --\nnode-name: n1\npolicy-audits: true\n-- verdicts'),
      'f.txtar:14: Cannot read settings.yaml:2:1: there is no setting "policy-audits" for a file',
    ],
    'an unknown key of the network': [
      WHOLE.replace(
        '-- verdicts',
        '-- net-conf.json --\n{ "Network": "10.0.0.0/8", "Backend": { "Type": "ipip", "Mode": "Always" } }\n-- verdicts',
      ),
      'f.txtar:13: Cannot read net-conf.json: unknown key "Backend.Mode"',
    ],
  }
  for (const [what, [text, want]] of Object.entries(wrong))
    it(`${what} is an error that names file and line`, async () => {
      const said = await says(text)
      assert.equal(said.slice(0, want.length), want)
    })

  it('"..." stands for text within a line, for lines, and with blanks before it for lines of the same block', () => {
    const text = 'a 1\n  b 2\n  c 3\nd 4\n  e 5\n'
    for (const wanted of ['...\n', 'a ...\n...\n  e 5\n', 'a 1\n  ...\n  c 3\n...\n', '...\nd ...\n  ...\n'])
      assert.equal(firstMiss(wanted, text), undefined, wanted)
    assert.equal(firstMiss('a 1\n  ...\n  e 5\n', text), 2)
    assert.equal(firstMiss('...\n  c 4\n...\n', text), 1)
    assert.equal(firstMiss('a 1\n  b 2\n', text), 2)
  })

  it('a line of a section "lacks: NAME" must not be there', async () => {
    assert.match(
      await says(`${WHOLE}-- lacks: nft --\nno such line\n    iif lo accept\n`),
      /^f\.txtar:16: "nft" has this line, and it must not:/,
    )
    assert.equal(await says(`${WHOLE}-- lacks: nft --\nno such line\n`), 'passes')
  })

  it('the first paragraphs are plain English, and the example of the page passes', async () => {
    const files = [...new Glob('test/scenarios/*/*.txtar').scanSync({ cwd: ROOT })]
    const titles = files.map((file) => [file, titleOf(file, readFileSync(join(ROOT, file), 'utf8'))] as const)
    assert.deepEqual(
      titles.flatMap(([file, title]) => check(file, title).findings),
      [],
    )
    const page = readFileSync(join(ROOT, 'test/scenarios/README.md'), 'utf8')
    assert.deepEqual(check('test/scenarios/README.md', page).findings, [])
    const example = /```txtar\n([\s\S]*?)```/.exec(page)?.[1] ?? ''
    assert.equal(await says(example), 'passes')
  })
})
