// lane: netns
// Tests cli/demo.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { assertTold, DIST, demo, itEndsOn, itFindsOut, machine, type Sabotage } from '../../support/demo.ts'
import { inNamespaces, snapshot } from '../../support/harness.ts'

const PLUMB = join(DIST, 'plumb')
const STEPS = 23

describe('plumb demo pods', () => {
  it(
    'wires, tries out, checks and removes three pods on one screen, and leaves the machine as it was',
    inNamespaces(['node'], async ({ node }) => {
      const before = await machine(node)
      const told = await demo(node, 'pods')
      assertTold(told, STEPS)
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
        /^ {2}elements of nft sets and maps +0 +12 +0$/m,
        /^ {2}host ports claimed +0 +1 +0$/m,
        /^ {2}attachments remembered +0 +3 +0$/m,
      ])
        assert.match(told.stdout, line)
      assert.deepEqual(await machine(node), before)
    }),
  )

  const broken: readonly Sabotage[] = [
    {
      what: 'nft fails',
      file: '/usr/sbin/nft',
      script: '[[ "$*" = *-f* ]] || exec REAL "$@"; echo no >&2; exit 1',
      step: 'plumb cni add pods web',
      said: /plugin type="bridge" failed \(add\)/,
    },
    {
      what: 'nothing answers a ping',
      file: '/usr/bin/ping',
      script: 'exit 1',
      step: 'ping from each pod to the others',
      said: /no answer from 10\.244\.0\.3 to web/,
    },
    {
      what: 'ADD only says that it did',
      file: `${DIST}/bridge`,
      script: 'echo \'{"cniVersion":"1.1.0","ips":[{"address":"10.244.0.2/24","gateway":"10.244.0.1"}]}\'',
      step: 'plumb cni add pods web',
      said: /ip -j addr show dev eth0|addresses of eth0 in web/,
    },
    {
      what: 'ipMasq does nothing',
      file: `${DIST}/bridge`,
      script: `sed 's/"ipMasq":true/"ipMasq":false/' | (exec -a bridge '${DIST}/vrf')`,
      step: 'HTTP to outside, masqueraded, IPv4',
      said: /saw "200 [^"]*Hello 10\.244\.0\.3, /,
    },
    {
      what: 'portmap does nothing',
      file: `${DIST}/portmap`,
      script: `sed 's/.*"prevResult":\\({.*}\\)}$/\\1/' </dev/null; [ $CNI_COMMAND != ADD ] || python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin)["prevResult"]))'`,
      step: 'HTTP from outside, 192.0.2.1:8080',
      said: /TimeoutError|refused|Unable to connect/i,
    },
    {
      what: 'CHECK finds nothing',
      file: `${DIST}/bridge`,
      script: `[ $CNI_COMMAND = CHECK ] || exec -a bridge '${DIST}/vrf'`,
      step: 'plumb cni check pods app',
      said: /saw "as it should be"/,
    },
    {
      what: 'DEL does nothing',
      file: `${DIST}/bridge`,
      script: `[ $CNI_COMMAND = DEL ] || exec -a bridge '${DIST}/vrf'`,
      step: 'plumb cni del pods web',
      said: /links in web: saw \["lo","eth0"\], want \["lo"\]/,
    },
    {
      what: 'DEL keeps the addresses',
      file: `${DIST}/host-local`,
      script: `[[ $CNI_COMMAND = [DG]* ]] || exec -a host-local '${DIST}/vrf'`,
      step: 'what the pods left',
      said: /what is new since the start: saw \[[^\]]*"\+ 10\.244\.0\.2"/,
    },
  ]
  itFindsOut(broken, 'pods')

  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    itEndsOn(
      signal,
      /HTTP servers +ok/,
      [/plumb demo --inside/, /plumb demo --serve web/, /plumb demo --serve outside/],
      'pods',
    )

  it(
    'is coloured on a terminal, and plain with NO_COLOR',
    inNamespaces(['node'], async ({ node }) => {
      const onTerminal = (env: Readonly<Record<string, string>>) =>
        node.exec(['script', '-qec', `'${PLUMB}' demo pods`, '/dev/null'], { env })
      const [coloured, plain] = [await onTerminal({}), await onTerminal({ NO_COLOR: '1' })]
      assert.deepEqual([coloured.status, plain.status], [0, 0])
      assert.equal(coloured.stdout.split('\x1b[32mok\x1b[0m').length - 1, STEPS)
      assert.ok(!plain.stdout.includes('\x1b'))
    }),
  )
})

describe('plumb demo', () => {
  const refused: readonly (readonly [argv: readonly string[], said: RegExp])[] = [
    [['--fast'], /^plumb demo has no option --fast; see plumb demo --help$/m],
    [['pod'], /^plumb demo takes no "pod": want pods, nodes, policy, services, bgp, kubernetes; /],
    [['nodes', 'pods'], /^plumb demo takes no "pods": want pods, nodes, policy, services, bgp, kubernetes; /],
    [['--store', 'kube'], /^Cannot read --store "kube": want file or etcd; /],
    [['--store'], /store.* see plumb demo --help$/m],
    [['pods', '--store', 'file'], /^plumb demo pods takes no --store: /],
    [['bgp', '--store', 'file'], /^plumb demo bgp takes no --store: /],
    [['--inside'], /^plumb demo --inside is for plumb demo itself, /],
    [['--inside', 'net:[1]'], /^plumb demo --inside is for plumb demo itself, /],
    [['--inside', 'net:[1]', 'nodes'], /^plumb demo --inside is for plumb demo itself, /],
  ]
  it(
    'refuses what it does not know, and to do its work outside of its own namespaces',
    inNamespaces(['node'], async ({ node }) => {
      const before = await snapshot(node)
      for (const [argv, said] of refused) {
        const { status, stdout, stderr } = await demo(node, ...argv)
        assert.deepEqual([status, stdout], [2, ''], argv.join(' '))
        assert.match(stderr, said)
      }
      assert.match(
        (await demo(node, '--help')).stdout,
        /^usage: plumb demo \[pods\|nodes\|policy\|services\|bgp\|kubernetes\][\s\S]*--store[\s\S]*exit status: 0/,
      )
      assert.equal(await snapshot(node), before)
    }),
  )
})
