import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdtempSync, readFileSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { leftOf } from './attachment-leftovers.ts'
import { type Answer, inNamespaces, type Namespace, plugin, type Row, until } from './harness.ts'
import { type Conf, containerId } from './network.ts'
import { clear } from './plugin-scenes.ts'
import { addresses, pool } from './pool.ts'
import { STRACE } from './recording.ts'
import { skip } from './skip.ts'

const DIST = join(import.meta.dir, '../../dist')
/** How often plumb asks a question before it gives up. */
const TRIES = 8
/**
 * What strace does to recv(2), and at how many calls in a row. The texts in hexadecimal are the first bytes of an
 * answer: struct nlmsghdr (netlink(7)), then a number of an error.
 */
const FAULTS: Readonly<Record<string, readonly [inject: string, calls: number]>> = {
  EINTR: ['error=EINTR', 1],
  'ENOBUFS once': ['error=ENOBUFS', 1],
  ENOBUFS: ['error=ENOBUFS', TRIES],
  ENOMEM: ['error=ENOMEM', TRIES],
  'no answer': ['error=EAGAIN', TRIES],
  'an empty answer': ['retval=0', TRIES],
  'a message that is cut off': ['poke_exit=@arg2=ffff0000', TRIES],
  'a refusal': ['poke_exit=@arg2=24000000020000000000000000000000f4ffffff', TRIES],
  'a list that ends with an error': ['poke_exit=@arg2=14000000030002000000000000000000f4ffffff', TRIES],
}
const SAID = /EINTR|ENOBUFS|ENOMEM|EAGAIN|kernel/
const PORTS = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }]

/** A node whose pool is full. A pod that no plugin of plumb made has one address, and a container that is gone another. */
function scene(node: Namespace, pod: Namespace) {
  const net = pool(node, { subnet: '10.1.0.0/29' })
  const conf = { ...net.conf, cniVersion: '1.1.0', bridge: 'br0', ipMasq: true, isGateway: true } as unknown as Row &
    Conf
  const confs: Record<string, Row> = {
    bridge: conf,
    portmap: { cniVersion: '1.1.0', name: 'net', type: 'portmap', runtimeConfig: { portMappings: PORTS } },
  }
  const [, boot] = /^btime (\d+)$/m.exec(readFileSync('/proc/stat', 'utf8')) ?? []
  const old = (name: string, id: string) => {
    net.put(name, `${id}\r\neth0`)
    utimesSync(join(net.dir, name), Number(boot) - 600, Number(boot) - 600)
  }
  const call = (type: string, command: string, file = `${DIST}/${type}`, more: Row = {}): Promise<Answer> =>
    plugin(type, { command, conf: { ...confs[type], ...more }, containerId: containerId(pod), netns: pod, file }, node)
  return { net, conf, old, call }
}

/** The plugin, with a fault at these calls of recv(2). */
function faulty(type: string, inject: string): { file: string; wasInjected: () => boolean } {
  const dir = mkdtempSync('/run/strace-')
  const [file, log] = [join(dir, type), join(dir, 'log')]
  const trace = `${STRACE} -qq -o ${log} -e trace=recvfrom -e inject=recvfrom:${inject}`
  writeFileSync(file, `#!/bin/sh\nexec ${trace} ${DIST}/${type}\n`)
  chmodSync(file, 0o755)
  return { file, wasInjected: () => existsSync(log) && /INJECTED/.test(readFileSync(log, 'utf8')) }
}

const CALLS = [
  ['bridge', 'ADD'],
  ['portmap', 'ADD'],
  ['bridge', 'CHECK'],
  ['portmap', 'CHECK'],
  ['portmap', 'DEL'],
  ['bridge', 'DEL'],
  ['portmap', 'GC'],
  ['bridge', 'GC'],
] as const

/** Defines the test of a fault at each recv(2) of some calls, by all of them without `verbs`. */
export function testAnswers(name: keyof typeof FAULTS, verbs = CALLS.map((call) => call.join(' '))): void {
  const [inject, calls] = FAULTS[name] as (typeof FAULTS)[string]
  it(
    `${name}, at each recv(2) of ${verbs.join(', ')}: no address is given twice, and nothing is left`,
    inNamespaces(['node', 'pod', 'living'], async ({ node, pod, living }, test) => {
      if (!existsSync(STRACE)) skip(test, `${STRACE} is not installed, which makes system calls fail`)
      test.timeout(300_000)
      const { net, conf, old, call } = scene(node, pod)
      await living.ip('link', 'add', 'theirs', 'type', 'veth', 'peer', 'name', 'theirs2')
      await living.ip('address', 'add', '10.1.0.2/29', 'dev', 'theirs')
      old('10.1.0.2', 'living')
      for (const n of [4, 5, 6]) net.put(`10.1.0.${n}`, `other${n}\r\neth0`)
      const works = async (answer: Promise<Answer>) => {
        const { status, stdout, stderr, result } = await answer
        assert.equal(status, 0, `${stdout}${stderr}`)
        return result
      }
      let injected = 0
      for (const [type, command] of CALLS.filter((one) => verbs.includes(one.join(' '))))
        for (let nth = 1; ; nth++) {
          assert.ok(nth < 200, `${type} ${command} calls recv(2) without end`)
          old('10.1.0.3', 'forgotten')
          const { file, wasInjected } = faulty(type, `${inject}:when=${nth}..${nth + calls - 1}`)
          let given: Row | undefined
          if (command !== 'ADD' || type !== 'bridge') given = await works(call('bridge', 'ADD'))
          if (command !== 'ADD') await works(call('portmap', 'ADD', undefined, { prevResult: given }))
          if (command === 'DEL' && type === 'bridge') await works(call('portmap', 'DEL'))
          const attachments = ['other4', 'other5', 'other6', 'living', containerId(pod)]
          const answer = await call(type, command, file, {
            ...(given && { prevResult: given }),
            ...(command === 'GC' && {
              'cni.dev/valid-attachments': attachments.map((containerID) => ({ containerID, ifname: 'eth0' })),
            }),
          })
          const about = `${type} ${command}, ${name} at recv ${nth}: ${answer.stdout}${answer.stderr}`
          if (answer.status !== 0) clear(answer, SAID)
          else if (command === 'ADD') assert.deepEqual(addresses(answer.result), ['10.1.0.3'], about)
          assert.equal(net.files()['10.1.0.2'], 'living\r\neth0', about)
          // Nobody takes the pod off the network but a DEL.
          if (command === 'CHECK' || command === 'GC') {
            await works(call('bridge', 'CHECK', undefined, { prevResult: given }))
            await works(call('portmap', 'CHECK', undefined, { prevResult: given }))
          }
          await works(call('portmap', 'DEL'))
          await works(call('bridge', 'DEL'))
          await until(async () => assert.deepEqual(await leftOf(conf, node, pod), [], about) === undefined, 3000)
          assert.deepEqual(
            net.reserved().filter((ip) => ip !== '10.1.0.3'),
            ['10.1.0.2', '10.1.0.4', '10.1.0.5', '10.1.0.6'],
            about,
          )
          if (!wasInjected()) break
          injected++
        }
      assert.ok(injected > 5, `${injected} calls of recv(2)`)
    }),
  )
}
