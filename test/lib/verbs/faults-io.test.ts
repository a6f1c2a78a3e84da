// lane: netns
// Tests lib/verbs: what an ADD leaves when a step fails.
import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { leftOf } from '../../support/attachment-leftovers.ts'
import { DIST } from '../../support/cnitool.ts'
import { type Answer, type Call, inNamespaces, type Namespace, ping, plugin, until } from '../../support/harness.ts'
import { bridgeConf, type Conf, containerId, network, traces } from '../../support/network.ts'
import { shimmed } from '../../support/tool-shims.ts'

/** Shell words that spoil standard output, and what plumb says of it on stderr. */
const BROKEN: Readonly<Record<string, readonly [words: string, said: RegExp]>> = {
  'is closed': ['exec >&-', /EBADF: stdout is closed/],
  'is full': ['exec >/dev/full', /ENOSPC/],
  'is a pipe that nobody reads': ['mkfifo /run/pipe-$$; exec 3<>/run/pipe-$$; exec >/run/pipe-$$; exec 3>&-', /EPIPE/],
  'is read-only': ['exec 1</dev/null', /EBADF/],
}

describe('standard output', () => {
  for (const [what, [words, said]] of Object.entries(BROKEN)) {
    it(
      `ADD of bridge when it ${what}: exit 1, the reason on stderr, nothing left; the next ADD works`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = network(
          node,
          bridgeConf({ isDefaultGateway: true, ipMasq: true, macspoofchk: true }, '10.1.0.0/24', 'fd00:1::/64'),
        )
        const { status, stdout, stderr } = await call('bridge', 'ADD', net.conf, pod, node, words)
        assert.deepEqual({ status, stdout }, { status: 1, stdout: '' })
        assert.match(stderr, said)
        assert.match(stderr, /code=5 msg="Cannot write the result to stdout" details="what was made is removed again/)
        assert.deepEqual(await leftOf(net.conf, node, pod), [])
        await net.add(pod)
        await until(() => ping(pod, '10.1.0.1'))
      }),
    )

    it(
      `ADD of host-local when it ${what}: exit 1, the reason on stderr, no address taken`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const conf = bridgeConf()
        const { status, stderr } = await call('host-local', 'ADD', conf, pod, node, words)
        assert.equal(status, 1)
        assert.match(stderr, said)
        assert.deepEqual(traces(pod, conf), [])
      }),
    )

    it(
      `ADD of loopback, VERSION and an error when it ${what}: exit 1 and the reason on stderr; CHECK and DEL, which say nothing, work`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const lo: Conf = { cniVersion: '1.1.0', name: 'lo', type: 'loopback' }
        for (const command of ['ADD', 'VERSION', 'FOO']) {
          const { status, stderr } = await call('loopback', command, lo, pod, node, words)
          assert.equal(status, 1, command)
          assert.match(stderr, said, command)
          assert.match(
            stderr,
            { ADD: /code=5/, VERSION: /^Cannot write the versions/, FOO: /unknown CNI_COMMAND/ }[command] as RegExp,
          )
        }
        const result = await network(node, lo).add(pod)
        for (const command of ['CHECK', 'DEL'])
          assert.deepEqual(
            await done(call('loopback', command, { ...lo, prevResult: result }, pod, node, words)),
            { status: 0, stdout: '', stderr: '' },
            command,
          )
      }),
    )
  }

  it(
    'ADD to /dev/null, which somebody who tries it by hand may choose, works',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf({ isGateway: true }))
      assert.equal((await call('bridge', 'ADD', net.conf, pod, node, 'exec >/dev/null')).status, 0)
      await until(() => ping(pod, '10.1.0.1'))
      await net.del(pod)
    }),
  )

  it(
    'a closed stderr, or all three closed, changes nothing about what ADD and DEL do',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, { ...bridgeConf({ isGateway: true }), unknownKey: 1 })
      assert.equal((await call('bridge', 'ADD', net.conf, pod, node, 'exec 2>&-')).status, 0)
      assert.equal((await call('bridge', 'DEL', net.conf, pod, node, 'exec 2>&-')).status, 0)
      assert.equal((await call('bridge', 'ADD', net.conf, pod, node, 'exec <&- >&- 2>&-')).status, 1)
      assert.deepEqual(await leftOf(net.conf, node, pod), [])
    }),
  )
})

describe('standard input', () => {
  const inputs: Readonly<Record<string, readonly [words: string, code: number, msg: RegExp]>> = {
    'is closed': ['exec <&-', 6, /^Cannot read the configuration: it is not JSON$/],
    'is a folder': ['exec </', 5, /^Cannot read the configuration from stdin$/],
    'is write-only': ['exec 0>/run/write-only', 5, /^Cannot read the configuration from stdin$/],
    'is empty': ['exec </dev/null', 6, /^Cannot read the configuration: it is not JSON$/],
  }
  for (const [what, [words, code, msg]] of Object.entries(inputs)) {
    it(
      `when it ${what}: an error of code ${code}, and nothing is changed`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const before = await node.ip('addr')
        for (const type of ['bridge', 'host-local', 'loopback']) {
          for (const command of ['ADD', 'DEL', 'CHECK', 'GC', 'STATUS']) {
            const { status, error } = await call(type, command, { name: 'x' }, pod, node, words)
            assert.deepEqual([status, error.code], [1, code], `${command} of ${type}`)
            assert.match(error.msg, msg)
          }
        }
        assert.equal(await node.ip('addr'), before)
        assert.ok(!existsSync('/var/lib/cni/networks'))
      }),
    )
  }
})

/** Shell lines that start "$@" in a way of its own, each as some runtime does. */
const STARTS: Readonly<Record<string, string>> = {
  'stdin is a pipe that does not block and is empty for a moment': `{ sleep 0.2; cat; } | perl -MFcntl -e 'fcntl(STDIN, F_SETFL, O_NONBLOCK); exec @ARGV' "$@"`,
  'stdout is a pipe that does not block and is full for a moment': `exec perl -MFcntl -e '
    pipe(R, W); fcntl(W, F_SETFL, O_NONBLOCK);
    my ($full, $some) = (0); $full += $some while $some = syswrite(W, "x" x 4096);
    if (fork) { close R; open(STDOUT, ">&W"); exec @ARGV }
    close W; select(undef, undef, undef, 0.5); read(R, my $filler, $full); print while <R>' "$@"`,
  'the signal about ended children is ignored': `trap '' CHLD; exec "$@"`,
}

describe('a runtime that starts plugins in a way of its own', () => {
  for (const [what, line] of Object.entries(STARTS))
    it(
      `${what}: ADD, CHECK and DEL work`,
      inNamespaces(['node', 'pod'], async ({ node, pod }) => {
        const net = network(node, bridgeConf({ isGateway: true, ipMasq: true }))
        const file = join(mkdtempSync('/run/start-'), 'bridge')
        writeFileSync(file, `#!/bin/sh\nset -- ${DIST}/bridge\n${line}\n`, { mode: 0o755 })
        const result = await net.add(pod, { file })
        assert.ok(await ping(pod, '10.1.0.1'))
        await net.check(pod, result, { file })
        await net.del(pod, { file })
        assert.deepEqual(await leftOf(net.conf, node, pod), [])
      }),
    )

  it(
    'a file may have no size: ADD fails with an error object, and what it made goes again; DEL works',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = bridgeConf({ isGateway: true })
      const add = await call('bridge', 'ADD', conf, pod, node, 'ulimit -f 0')
      assert.deepEqual([add.status, add.error.code], [1, 5])
      assert.match(add.error.msg, /EFBIG/)
      assert.equal((await call('bridge', 'DEL', conf, pod, node, 'ulimit -f 0')).status, 0)
      assert.deepEqual(await leftOf(conf, node, pod), [])
    }),
  )

  it(
    'no file may be opened: ADD does not say that the container is gone',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = bridgeConf({ isGateway: true })
      for (let most = 4; most < 16; most++) {
        const { status, error } = await call('bridge', 'ADD', conf, pod, node, `ulimit -n ${most}`)
        assert.ok(status === 0 || error.code === 5 || error.code === 999, `${most}: ${error.code} ${error.msg}`)
        await network(node, conf).del(pod)
        assert.deepEqual(await leftOf(conf, node, pod), [])
      }
    }),
  )
})

function call(
  type: string,
  command: string,
  conf: Conf,
  pod: Namespace,
  node: Namespace,
  words: string,
): Promise<Answer> {
  const more: Call = { command, conf, containerId: containerId(pod), netns: pod, file: shimmed(type, {}, words).file }
  return plugin(type, more, node)
}

async function done(answer: Promise<Answer>): Promise<object> {
  const { status, stdout, stderr } = await answer
  return { status, stdout, stderr }
}
