// lane: quick
// Tests agent/backend/types/extension.ts and agent/node/command.ts.
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import extension from '../../../../agent/backend/types/extension.ts'
import { encodeValue } from '../../../../agent/lease/lease.ts'
import { readAdded, writeAdded } from '../../../../agent/node/added-peers.ts'
import { runCommand, wordsOf } from '../../../../agent/node/command.ts'
import type { Cidr } from '../../../../lib/text/ip.ts'
import { parse } from '../../../../lib/text/values.ts'
import { lease, uplink } from '../../../support/cluster.ts'
import { until } from '../../../support/harness.ts'
import { testBackend } from '../../../support/suites/testBackend.ts'

testBackend(extension, false)

const FACTS = { nexthops: false, instance: parse.network('default'), networks: ['0.0.0.0/0' as Cidr, '::/0' as Cidr] }

describe('extension', () => {
  it('the lease has the output of PreStartupCommand as flannel writes it, and without that command no data', () => {
    const announced = (output?: string) => {
      const conf = { commands: {}, ...(output !== undefined && { output }) }
      return encodeValue(lease(1, extension.announce('node-1', uplink(1), conf), 'extension', ['v4']))
    }
    const head = '{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"extension"'
    assert.equal(announced(), `${head}}`)
    assert.equal(announced('<a>&"b"\nc'), `${head},"BackendData":"\\u003ca\\u003e\\u0026\\"b\\"\\nc"}`)
  })

  it('data that is no text is refused, and the peer is named', () => {
    const own = lease(1, {}, 'extension')
    const bad = lease(2, { v4: { VtepMAC: 'x' } }, 'extension')
    const { problems } = extension.want(
      own,
      [bad, lease(3, { v4: 'x' }, 'extension')],
      uplink(1),
      extension.conf({}),
      FACTS,
    )
    assert.deepEqual(
      [...problems.values()],
      ['Cannot read BackendData {"VtepMAC":"x"}: want a text, as PreStartupCommand printed it'],
    )
  })

  it('commands that are none are refused', () => {
    for (const SubnetAddCommand of [1, ['ip'], 'a\0b'])
      assert.throws(() => extension.conf({ SubnetAddCommand }), {
        name: 'ValueError',
        message: /SubnetAddCommand.*want/,
      })
    assert.deepEqual(extension.commands?.of(extension.conf({ SubnetAddCommand: ' ', subnetremovecommand: 'x' })), {
      SubnetRemoveCommand: 'x',
    })
  })
})

describe('wordsOf()', () => {
  for (const [text, words] of Object.entries({
    'ip route add $SUBNET via ${PUBLIC_IP}': ['ip', 'route', 'add', '10.1.0.0/24', 'via', '192.0.2.1'],
    '  a\tb\n c ': ['a', 'b', 'c'],
    '"$SUBNET"': ['"10.1.0.0/24"'],
    'echo $TWO;reboot': ['echo', 'x y;reboot'],
    '$NONE a${NONE}b': ['', 'ab'],
    'a$ $% ${} ${': ['a$', '$%', '', ''],
    '$SUBNETS $SUBNET-x $1 $$': ['', '10.1.0.0/24-x', '', ''],
    '$(id) `id` a|b >c': ['$(id)', '`id`', 'a|b', '>c'],
  }))
    it(`${JSON.stringify(text)} becomes ${JSON.stringify(words)}`, () => {
      assert.deepEqual(wordsOf(text, { SUBNET: '10.1.0.0/24', PUBLIC_IP: '192.0.2.1', TWO: 'x y' }), words)
    })
})

describe('runCommand()', () => {
  it('gives both streams together, trimmed, and the input with a line end', async () => {
    const script = 'printf "  $GIVEN\\n"; echo err >&2; od -An -c'
    const { output, failure } = await runCommand('sh -c $SCRIPT', { SCRIPT: script, GIVEN: 'out' }, '<&"\nx')
    assert.equal(failure, undefined)
    assert.equal(output.replace(/ +/g, ' '), 'out\nerr\n < & " \\n x \\n')
  })

  it('a command that fails, that is ended and that is not there are told apart', async () => {
    const failures = {
      'sh -c $SCRIPT': 'it ended with status 3',
      'no-such-program': 'there is no program "no-such-program" in PATH',
    }
    for (const [command, failure] of Object.entries(failures)) {
      const ran = await runCommand(command, { SCRIPT: 'echo why; exit 3' }, '')
      assert.equal(ran.failure, failure)
    }
    assert.deepEqual(await runCommand('sh -c $SCRIPT', { SCRIPT: 'kill -TERM $$' }, ''), {
      output: '',
      failure: 'signal SIGTERM ended it',
    })
    assert.match((await runCommand('$NONE', {}, '')).failure ?? '', /there is no program ""/)
  })

  it('a command that hangs is killed after its time, with all that it started, and what it wrote is kept', async () => {
    const script = 'sleep 1000 & echo $!; sleep 1000'
    const { output, failure } = await runCommand('sh -c $SCRIPT', { SCRIPT: script }, '', { limitMs: 500 })
    assert.equal(failure, 'it was killed after 0.5 s')
    await until(() => stateOf(Number(output)) === undefined || stateOf(Number(output)) === 'Z')
  })

  it('a command that writes without end is killed', async () => {
    const { failure } = await runCommand('yes', {}, '')
    assert.equal(failure, 'it was killed after it had written more than 1048576 bytes')
  })
})

describe('the file of the added peers', () => {
  it('gives back what it got, is for root alone, and goes with the last peer', () => {
    const dir = mkdtempSync(join(tmpdir(), 'added-'))
    try {
      const path = join(dir, 'commands.json')
      const { node: _, ...peer } = lease(2, { v4: '<&"\n' }, 'extension')
      const added = { remove: 'ip route del $SUBNET', peers: [peer] }
      writeAdded(path, added)
      assert.deepEqual(readAdded(path), added)
      assert.equal(statSync(path).mode & 0o777, 0o600)
      writeAdded(path, { ...added, peers: [] })
      assert.deepEqual(readAdded(path), { remove: '', peers: [] })
    } finally {
      rmSync(dir, { recursive: true })
    }
  })
})

function stateOf(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\) /, '').charAt(0)
  } catch {
    return undefined
  }
}
