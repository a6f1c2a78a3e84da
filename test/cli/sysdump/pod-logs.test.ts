// lane: quick
// Tests cli/sysdump/pod-logs.ts.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { podLogs } from '../../../cli/sysdump/pod-logs.ts'
import { Redactor } from '../../../cli/sysdump/redactor.ts'

describe('podLogs()', () => {
  const dirs: string[] = []
  afterEach(() => {
    for (const dir of dirs.splice(0)) rmSync(dir, { recursive: true })
  })
  const [old, now] = [7200, 0].map((seconds) => new Date(Date.now() - seconds * 1000).toISOString())
  const folderOf = (files: Readonly<Record<string, string>>) => {
    const dir = mkdtempSync('/tmp/pod-logs-')
    dirs.push(dir)
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(join(dir, path, '..'), { recursive: true })
      writeFileSync(join(dir, path), text)
    }
    return dir
  }

  it('has the logs of plumb, DNS and kube-proxy for the time, and of no other pod', async () => {
    const line = (text: string, time = now) => `${time} stdout F ${text}\n`
    const dir = folderOf({
      'net_plumb-7x2lp_1/agent/0.log': `${line('long ago', old)}${line('agent is ready')}`,
      'kube-system_coredns-5d-9_2/coredns/1.log': line('DNS of now'),
      'kube-system_coredns-5d-9_2/coredns/0.log': line('DNS of before'),
      'kube-system_coredns-5d-9_2/coredns/0.log.20261128-093000': line('DNS that was rotated'),
      'kube-system_coredns-5d-9_2/coredns/0.log.20261128-083000.gz': 'compressed',
      'kube-system_kube-proxy-x_3/kube-proxy/0.log': `{"log":"of Docker\\n","time":"${now}"}\n{"log":"old","time":"${old}"}\n`,
      'kube-system_etcd-a_4/etcd/0.log': line('of etcd'),
      'shop_coredns-mine_5/x/0.log': line('of a user'),
      'shop_web-1_6/web/0.log': line('of a user'),
    })
    symlinkSync('/dev/zero', join(dir, 'net_plumb-7x2lp_1/agent/1.log'))
    const text = await podLogs(3600, dir)
    for (const part of ['agent is ready', 'DNS of now', 'DNS of before', 'DNS that was rotated', 'of Docker'])
      assert.ok(text.includes(part), `${part}: ${text}`)
    for (const part of ['long ago', 'old', 'compressed', 'of etcd', 'of a user'])
      assert.ok(!text.includes(part), `${part}: ${text}`)
    assert.match(text, new RegExp(`^==== ${dir}/net_plumb-7x2lp_1/agent/0.log$`, 'm'))
    assert.match(await podLogs(3600, join(dir, 'none')), /has no log of plumb/)
  })
  it('a secret that the runtime cut in two is removed, and a large log has only its end', async () => {
    const secret = 'Hunter2-Swordfish'
    const cut = `${now} stderr P password="${secret.slice(0, 9)}\n${now} stdout F between\n${now} stderr F ${secret.slice(9)}"\n`
    const dir = folderOf({
      'x_plumb-a_1/agent/0.log': cut,
      'x_plumb-b_1/agent/0.log': `${now} stdout F first\n${`${now} stdout F ${'x'.repeat(1000)}\n`.repeat(2000)}${now} stdout F last\n`,
    })
    const text = new Redactor().file(await podLogs(3600, dir))
    assert.ok(!text.includes(secret.slice(0, 9)) && !text.includes(secret.slice(9)), text.slice(0, 300))
    assert.match(text, /stderr F password="?\(removed\)/)
    assert.ok(text.includes('between') && text.includes('stdout F last') && !text.includes('stdout F first'))
    assert.ok(text.length < 600_000)
  })
})
