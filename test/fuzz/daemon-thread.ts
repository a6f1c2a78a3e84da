import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { readQuestion } from '../../agent/dhcp/reading.ts'
import { listen } from '../../lib/os/answers.ts'
import { leaseName } from '../../lib/pools/dhcp.ts'
import type { Cidr, Ip } from '../../lib/text/ip.ts'
import { DAEMON, HELD } from './daemon.ts'

declare const self: Worker

const result = {
  ips: [{ address: '10.1.0.20/24' as Cidr, gateway: '10.1.0.254' as Ip }],
  routes: [{ dst: '0.0.0.0/0' as Cidr, gw: '10.1.0.254' as Ip }],
  dns: { nameservers: ['10.1.0.53'] },
}

listen({ unix: DAEMON }, 'dhcp', async (text) => {
  const question = readQuestion(text)
  if (question.verb === 'add') writeFileSync(`${HELD}/${leaseName(question.owner)}`, '')
  if (question.verb === 'del') forget(leaseName(question.owner))
  if (question.verb === 'gc')
    for (const name of readdirSync(HELD)) if (!question.keep.map(leaseName).includes(name)) forget(name)
  return question.verb === 'add' || question.verb === 'check' ? { result } : {}
})
self.postMessage('listening')

function forget(name: string): void {
  if (existsSync(`${HELD}/${name}`)) rmSync(`${HELD}/${name}`)
}
