// lane: netns
// Tests lib/verbs: what an ADD leaves when a step fails.
import assert from 'node:assert/strict'
import { leftOf } from '../../support/attachment-leftovers.ts'
import { type Answer, inNamespaces, type Namespace, ping, plugin, type Row, until } from '../../support/harness.ts'
import { bridgeConf, type Conf, containerId, network } from '../../support/network.ts'
import { type Shimmed, shimmed, TOOLS, type Tool, without } from '../../support/tool-shims.ts'

const USES_ALL = { isDefaultGateway: true, ipMasq: true, macspoofchk: true }

describe('bridge with tools that do not work', () => {
  const PACKAGE: Readonly<Record<Exclude<Tool, 'conntrack'>, string>> = {
    ip: 'iproute2',
    bridge: 'iproute2',
    nft: 'nftables',
  }
  for (const tool of TOOLS) {
    refuses(`${tool} is missing`, () => shimmed('bridge', {}, without(tool)), {
      code: 5,
      text: new RegExp(`Cannot run ${tool}: it is not installed.*install the package ${PACKAGE[tool]}`),
    })
    refuses(
      `${tool} cannot be executed`,
      (dir) => shimmed('bridge', {}, `: > ${dir}/empty; mount --bind ${dir}/empty $(command -v ${tool})`),
      {
        code: 999,
        text: new RegExp(`Cannot use /\\S+/${tool}: cannot be started: .*EACCES.*; want iproute2`),
      },
    )
    refuses(
      `${tool} is for another machine`,
      (dir) =>
        shimmed(
          'bridge',
          {},
          `echo gibberish > ${dir}/bad; chmod 755 ${dir}/bad; mount --bind ${dir}/bad $(command -v ${tool})`,
        ),
      {
        code: 999,
        text: new RegExp(`Cannot use /\\S+/${tool}: cannot be started: .*ENOEXEC.*; want iproute2`),
      },
    )
    refuses(
      `${tool} prints garbage and fails`,
      () => shimmed('bridge', { [tool]: 'head -c 10000 /dev/urandom; head -c 3000 /dev/urandom >&2; exit 3' }),
      { code: 999, text: new RegExp(`Cannot use ${tool}|refused`) },
    )
    refuses(`${tool} is killed`, () => shimmed('bridge', { [tool]: 'kill -KILL $$' }), {
      code: 999,
      text: new RegExp(`Cannot use ${tool}: .*(137|signal)|${tool}.*(137|signal)`),
    })
  }
  refuses('ip does nothing and says that all went well', () => shimmed('bridge', { ip: 'echo "[{ garbage"' }), {
    code: 999,
    text: /refused: Cannot find device "veth\w+"/,
  })
  refuses('ip is of busybox', () => shimmed('bridge', { ip: 'echo "ip: invalid option -- \'d\'" >&2; exit 1' }), {
    code: 999,
    text: /Cannot use ip: ip: invalid option -- 'd'.*want iproute2 5\.18/,
  })
  // iproute2 4.9: `-j` came with 4.13.
  refuses(
    'ip is too old to print JSON',
    () => shimmed('bridge', { ip: 'echo "Option \\"-j\\" is unknown, try \\"ip -help\\"." >&2; exit 255' }),
    { code: 999, text: /Cannot use ip: Option "-j" is unknown.*want iproute2 5\.18/ },
  )
  // iproute2 5.10: `locked` came with 5.18; the lines that set other things work.
  const old = `
if ! grep -q locked "$input"; then exec "$real" "$@" < "$input"; fi
grep -v locked "$input" > "$dir/rest"
"$real" "$@" < "$dir/rest"
echo 'bridge_slave: unknown option "locked"?' >&2
echo "Command failed -:$(grep -n locked "$input" | cut -d: -f1)" >&2
exit 1`
  refuses('ip is too old to lock a port', () => shimmed('bridge', { ip: old }), {
    code: 999,
    text: /unknown option "locked".*link set dev veth\w+ .*locked on.*want iproute2 5\.18/,
  })
  refuses(
    'nft is too old for a word of the rules',
    () => shimmed('bridge', { nft: 'echo "/dev/stdin:4:2-5: Error: syntax error, unexpected junk" >&2; exit 1' }),
    { code: 999, text: /syntax error.*nft -f -.*nftables 1\.0/ },
  )

  for (const tool of TOOLS) {
    it(
      `ADD when ${tool} fails at any one of its calls: an error, nothing left, and the same ADD then works`,
      inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
        test.timeout(60_000)
        let failed = 0
        for (let at = 1; at <= 20; at++) {
          const net = network(node, bridgeConf(USES_ALL, '10.1.0.0/24', 'fd00:1::/64'))
          const script = `
if [ $n != ${at} ]; then exec "$real" "$@" < "$input"; fi
echo 'Error: Out of memory' >&2
[ ${tool} = nft ] || echo 'Command failed -:1' >&2
exit 2`
          const answer = await add(net.conf, pod, node, shimmed('bridge', { [tool]: script }))
          if (answer.status === 0) {
            await net.del(pod)
            break
          }
          failed++
          assert.match(`${answer.error.msg} ${answer.error.details}`, /Out of memory/, `call ${at}: ${answer.stdout}`)
          await until(async () => assert.deepEqual(await leftOf(net.conf, node, pod), []) === undefined, 1000)
          await works(await net.add(pod), pod)
          await net.del(pod)
        }
        assert.ok(failed > 0 && failed < 20, `${tool} failed at ${failed} calls`)
      }),
    )
  }
})

describe('bridge on a node with limits', () => {
  refuses(
    '/run is read-only',
    () => shimmed('bridge', {}, 'mkdir -p /run/cni; mount --bind /run/cni /run/cni; mount -o remount,bind,ro /run/cni'),
    { code: 5, text: /\/run\/cni\/plumb.*EROFS/ },
  )
  refuses('the data directory is read-only', (dir) => readOnly(dir), {
    code: 5,
    text: /Cannot use the address pool \S+\/net\d+: EROFS at \S+.*read-only/,
  })
  refuses(
    'the data directory has no space',
    (dir) => tiny(dir, 'size=4k', 'head -c 65536 /dev/zero > DIR/filler || true'),
    { code: 5, text: /Cannot use the address pool \S+\/net\d+: ENOSPC at \S+.*disk is full/ },
  )
  refuses('the data directory has no inodes', (dir) => tiny(dir, 'nr_inodes=2', ': > DIR/filler || true'), {
    code: 5,
    text: /Cannot use the address pool \S+\/net\d+: ENOSPC at \S+.*disk is full/,
  })
  refuses(
    'the data directory is a file',
    (dir) => shimmed('bridge', {}, `: > ${dir}/file`),
    { code: 5, text: /Cannot use the address pool \S+: (ENOTDIR|EEXIST) at \S+.*want a directory/ },
    (dir) => `${dir}/file/pool`,
  )
  refuses(
    'sysctls are read-only',
    () => shimmed('bridge', {}, 'mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys'),
    { code: 5, text: /\/proc\/sys\/net\/.*EROFS/ },
  )

  it(
    'DEL works while /run is read-only, and frees the address',
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const net = network(node, bridgeConf(USES_ALL))
      await net.add(pod)
      const { file } = shimmed('bridge', {}, 'mount --bind /run/cni /run/cni; mount -o remount,bind,ro /run/cni')
      await net.del(pod, { file })
      // What cannot be removed there goes when the address is given out again.
      const left = await leftOf(net.conf, node, pod)
      assert.deepEqual(
        left.filter((one) => !one.startsWith('/run/cni/plumb/')),
        [],
      )
    }),
  )

  it(
    'ADD with any number of files that it may open works, or is an error after which DEL leaves nothing',
    inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
      test.timeout(60_000)
      const seen = new Set<number>()
      for (let most = 3; most <= 40; most++) {
        const net = network(node, bridgeConf(USES_ALL, '10.1.0.0/24', 'fd00:1::/64'))
        const about = (cause: Error) => assert.fail(`ulimit -n ${most}: ${cause.message}`)
        const { status, stdout, error } = await add(
          net.conf,
          pod,
          node,
          shimmed('bridge', {}, `ulimit -n ${most}`),
        ).catch(about)
        seen.add(status)
        // With the fewest not even the program can start, with a few more it cannot undo what it began.
        if (status !== 0 && stdout !== '')
          assert.ok(
            Number.isInteger(error.code) && !/Unexpected failure/.test(error.msg),
            `ulimit -n ${most}: ${stdout}`,
          )
        await net.del(pod)
        await until(async () => assert.deepEqual(await leftOf(net.conf, node, pod), []) === undefined, 1000).catch(
          about,
        )
      }
      assert.ok(seen.has(0) && seen.has(1), [...seen].join())
    }),
  )
})

/**
 * ADD has to be an error with this code and text, to leave nothing, and to work when the fault is gone. `set` gets a
 * folder of the test; what it does happens in plumb's mount namespace alone.
 */
function refuses(
  what: string,
  set: (dir: string) => Shimmed,
  want: { code: number; text: RegExp },
  dataDir?: (dir: string) => string,
): void {
  it(
    `ADD when ${what}: a clear error, nothing left, and it works again when that is over`,
    inNamespaces(['node', 'pod'], async ({ node, pod }) => {
      const conf = bridgeConf(USES_ALL, '10.1.0.0/24', 'fd00:1::/64')
      const dir = conf.ipam?.dataDir as string
      const broken = set(dir)
      const bad = dataDir ? { ...conf, ipam: { ...conf.ipam, dataDir: dataDir(dir) } } : conf
      const { status, stdout, stderr, error } = await add(bad, pod, node, broken)
      assert.equal(status, 1, `${stdout}${stderr}`)
      assert.match(`${error.msg} ${error.details}`.replaceAll('\n', ' '), want.text, stdout)
      assert.equal(error.code, want.code, stdout)
      assert.doesNotMatch(stdout, /Unexpected failure|undefined|\[object/)
      assert.deepEqual(await leftOf(conf, node, pod), [])
      const net = network(node, conf)
      await works(await net.add(pod), pod)
      await net.del(pod)
      assert.deepEqual(await leftOf(conf, node, pod), [])
    }),
  )
}

function readOnly(dir: string): Shimmed {
  return shimmed('bridge', {}, `mount --bind ${dir} ${dir}; mount -o remount,bind,ro ${dir}`)
}

function tiny(dir: string, size: string, fill: string): Shimmed {
  return shimmed('bridge', {}, `mount -t tmpfs -o ${size} tmpfs ${dir}; ${fill.replace('DIR', dir)}`)
}

function add(conf: Conf, pod: Namespace, node: Namespace, { file }: Shimmed): Promise<Answer> {
  return plugin('bridge', { command: 'ADD', conf, containerId: containerId(pod), netns: pod, file }, node)
}

async function works({ ips }: Row, pod: Namespace): Promise<void> {
  for (const { gateway } of ips) await until(() => ping(pod, gateway))
}
