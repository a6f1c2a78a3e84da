import assert from 'node:assert/strict'
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { execa } from 'execa'
import { type Finished, inNamespaces, type Namespace, snapshot, until } from '../harness.ts'

const DIST = join(import.meta.dir, '../../dist')
const PLUMB = join(DIST, 'plumb')
const STEPS = 23

describe('plumb demo', () => {
  it(
    'wires, tries out, checks and removes three pods on one screen, and leaves the machine as it was',
    inNamespaces(['node'], async ({ node }) => {
      const before = [await snapshot(node), readdirSync('/run'), readdirSync('/var/lib')]
      const { status, stdout, stderr } = await node.exec([PLUMB, 'demo'])
      assert.deepEqual([status, stderr], [0, ''], stdout)
      const lines = stdout.trimEnd().split('\n')
      assert.ok(lines.length <= 40, `${lines.length} lines, and npm writes four of its own`)
      assert.deepEqual(
        lines.filter((line) => line.length > 100 || /[^ -~]/.test(line)),
        [],
      )
      assert.equal(lines.filter((line) => / ok +\d+ ms {2}\S/.test(line)).length, STEPS)
      for (const line of [
        /^ {2}plumb cni add pods web +ok +\d+ ms {2}10\.244\.0\.2 fd00:244::2, host port 8080$/m,
        /^ {2}ping from each pod to the others +ok +\d+ ms {2}12 of 12 answered, over IPv4 and IPv6$/m,
        /^ {2}ping from each pod to the node +ok +\d+ ms {2}6 of 6 answered/m,
        /^ {2}HTTP from app to web, IPv4 +ok +\d+ ms {2}200 Hello 10\.244\.0\.3, this is web$/m,
        /^ {2}HTTP from app to web, IPv6 +ok +\d+ ms {2}200 Hello fd00:244::3, this is web$/m,
        /^ {2}HTTP to outside, masqueraded, IPv4 +ok +\d+ ms {2}200 Hello 192\.0\.2\.1, this is outside$/m,
        /^ {2}HTTP from outside, 192\.0\.2\.1:8080 +ok +\d+ ms {2}200 Hello 192\.0\.2\.2, this is web$/m,
        /^ {2}HTTP from outside, \[2001:db8::1\]:8080 +ok +\d+ ms {2}200 Hello 2001:db8::2, this is web$/m,
        /^ {2}HTTP from the node, 127\.0\.0\.1:8080 +ok +\d+ ms {2}200 Hello 10\.244\.0\.1, this is web$/m,
        /^ {2}plumb cni check pods app +ok +\d+ ms {2}exit 1: route 0\.0\.0\.0\/0 in the pod is missing$/m,
        /^ {2}links of the node +2 +6 +3$/m,
        /^ {2}reservations in the pool +0 +6 +0$/m,
        /^ {2}elements of nft sets and maps +0 +8 +0$/m,
        /^ {2}host ports claimed +0 +1 +0$/m,
        /^ {2}attachments remembered +0 +3 +0$/m,
        new RegExp(`^${STEPS} steps, each as it says, in [\\d.]+ s`, 'm'),
      ])
        assert.match(stdout, line)
      assert.deepEqual([await snapshot(node), readdirSync('/run'), readdirSync('/var/lib')], before)
    }),
  )

  /** A program in the place of a real one, and the step that has to find it out. */
  const broken: readonly { readonly what: string; readonly file: string; readonly script: string; readonly step: string; readonly said: RegExp }[] = [
    { what: 'nft fails', file: '/usr/sbin/nft', script: '[[ "$*" = *-f* ]] || exec REAL "$@"; echo no >&2; exit 1', step: 'plumb cni add pods web', said: /plugin type="bridge" failed \(add\)/ },
    { what: 'nothing answers a ping', file: '/usr/bin/ping', script: 'exit 1', step: 'ping from each pod to the others', said: /no answer from 10\.244\.0\.3 to web/ },
    {
      what: 'ADD only says that it did',
      file: `${DIST}/bridge`,
      script: 'echo \'{"cniVersion":"1.1.0","ips":[{"address":"10.244.0.2/24","gateway":"10.244.0.1"}]}\'',
      step: 'plumb cni add pods web',
      said: /ip -j addr show dev eth0|addresses of eth0 in web/,
    },
    { what: 'ipMasq does nothing', file: `${DIST}/bridge`, script: `sed 's/"ipMasq":true/"ipMasq":false/' | (exec -a bridge '${PLUMB}')`, step: 'HTTP to outside, masqueraded, IPv4', said: /saw "200 [^"]*Hello 10\.244\.0\.3, / },
    {
      what: 'portmap does nothing',
      file: `${DIST}/portmap`,
      script: `sed 's/.*"prevResult":\\({.*}\\)}$/\\1/' </dev/null; [ $CNI_COMMAND != ADD ] || python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin)["prevResult"]))'`,
      step: 'HTTP from outside, 192.0.2.1:8080',
      said: /TimeoutError|refused|Unable to connect/i,
    },
    { what: 'CHECK finds nothing', file: `${DIST}/bridge`, script: `[ $CNI_COMMAND = CHECK ] || exec -a bridge '${PLUMB}'`, step: 'plumb cni check pods app', said: /saw "as it should be"/ },
    { what: 'DEL does nothing', file: `${DIST}/bridge`, script: `[ $CNI_COMMAND = DEL ] || exec -a bridge '${PLUMB}'`, step: 'plumb cni del pods web', said: /links in web: saw \["lo","eth0"\], want \["lo"\]/ },
    { what: 'DEL keeps the addresses', file: `${DIST}/host-local`, script: `[[ $CNI_COMMAND = [DG]* ]] || exec -a host-local '${PLUMB}'`, step: 'what the pods left', said: /what is new since the start: saw \[[^\]]*"\+ 10\.244\.0\.2"/ },
    { what: 'GC does nothing', file: `${DIST}/bridge ${DIST}/portmap`, script: `[ $CNI_COMMAND = GC ] || exec -a "\${0##*/}" '${PLUMB}'`, step: 'what the pods left', said: /saw \[[^\]]*"\+ masq4 / },
  ]
  for (const { what, file, script, step, said } of broken) {
    it(
      `exits 1 and names the step when ${what}`,
      inNamespaces(['node'], async ({ node }) => {
        const { status, stdout, stderr } = await withFile(node, file, `#!/bin/bash\n${script}\n`)
        assert.equal(status, 1, stdout)
        assert.equal(stderr, `plumb demo: FAILED at "${step}", see above; what it made ends with its namespaces\n`, stdout)
        const [shown = '', reason = ''] = stdout.split(/ FAILED +\d+ ms\n/)
        assert.equal(shown.split('\n').at(-1)?.trim(), step)
        assert.match(reason, said)
        assert.doesNotMatch(stdout, /each as it says/)
      }),
    )
  }

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    it(
      `ends with all of its processes on ${signal}`,
      inNamespaces(['node'], async ({ node }) => {
        const before = await snapshot(node)
        const child = execa('nsenter', [`--net=${node.path}`, '--', PLUMB, 'demo'], { reject: false, buffer: true })
        let seen = ''
        for await (const chunk of child.iterable({ binary: false })) {
          seen += `${chunk}\n`
          if (/HTTP servers +ok/.test(seen)) break
        }
        assert.ok(processes().length >= 4, processes().join('\n'))
        child.kill(signal)
        const { exitCode } = await child
        assert.equal(exitCode, signal === 'SIGINT' ? 130 : 143)
        await until(() => processes().length === 0)
        assert.equal(await snapshot(node), before)
      }),
    )
  }

  it(
    'is coloured on a terminal, and plain with NO_COLOR',
    inNamespaces(['node'], async ({ node }) => {
      const onTerminal = (env: Readonly<Record<string, string>>) => node.exec(['script', '-qec', `'${PLUMB}' demo`, '/dev/null'], { env })
      const [coloured, plain] = [await onTerminal({}), await onTerminal({ NO_COLOR: '1' })]
      assert.deepEqual([coloured.status, plain.status], [0, 0])
      assert.equal(coloured.stdout.split('\x1b[32mok\x1b[0m').length - 1, STEPS)
      assert.ok(!plain.stdout.includes('\x1b'))
    }),
  )

  it(
    'refuses what it does not know, and to do its work outside of its own namespaces',
    inNamespaces(['node'], async ({ node }) => {
      const before = await snapshot(node)
      for (const argv of [['--fast'], ['--inside'], ['--inside', 'net:[1]']]) {
        const { status, stdout, stderr } = await node.exec([PLUMB, 'demo', ...argv])
        assert.deepEqual([status, stdout], [2, ''])
        assert.match(stderr, /^plumb demo takes no "--fast"|^plumb demo --inside is for plumb demo itself/)
      }
      assert.match((await node.exec([PLUMB, 'demo', '--help'])).stdout, /^usage: plumb demo[\s\S]*exit status: 0/)
      assert.equal(await snapshot(node), before)
    }),
  )
})

/** Runs the demo where another file lies over one, in a mount namespace of its own; REAL in its text is where the one can be found. */
async function withFile(node: Namespace, file: string, text: string): Promise<Finished> {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-demo-'))
  const [shim, real] = [join(dir, 'shim'), join(dir, 'real')]
  if (text.includes('REAL')) copyFileSync(file, real)
  writeFileSync(shim, text.replaceAll('REAL', real), { mode: 0o755 })
  try {
    return await node.exec(['unshare', '--mount', '--propagation', 'private', 'sh', '-ec', 'for one in $2; do mount --bind "$1" "$one"; done; exec "$3" demo', 'sh', shim, file, PLUMB])
  } finally {
    rmSync(dir, { recursive: true })
  }
}

/** The command lines of what belongs to a demo, in this sandbox's process namespace. */
function processes(): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const argv = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
        return /plumb demo/.test(argv) ? [argv] : []
      } catch {
        return []
      }
    })
}
