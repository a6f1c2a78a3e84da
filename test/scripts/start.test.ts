// lane: quick
// Tests the executable that scripts/build.ts makes.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'
import { execa } from 'execa'

const ROOT = join(import.meta.dir, '../..')
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))

describe('the npm scripts', () => {
  it('hand what stands behind -- to the last command of a task, and its exit status back', async () => {
    const { exitCode, stderr } = await execa('npm', ['run', '--silent', 'setup', '--', 'no such'], {
      cwd: ROOT,
      reject: false,
      env: { npm_config_logs_max: '0' },
    })
    assert.match(stderr, /^setup: Cannot set up for "no such": want one of node, /m)
    assert.equal(exitCode, 1)
  }).timeout(60_000)

  it('are tasks of scripts/start.ts, which names them when it is asked for another', async () => {
    const { exitCode, stderr } = await execa(process.execPath, ['scripts/start.ts', 'toString'], {
      cwd: ROOT,
      reject: false,
    })
    assert.equal(exitCode, 1)
    const [, tasks = ''] = /^Cannot run "toString": want one of (.*)$/.exec(stderr) ?? []
    const started = Object.entries<string>(scripts).flatMap(([name, line]) =>
      line === `npm run --silent bun -- ${name}` ? [name] : [],
    )
    assert.deepEqual(tasks.split(', ').sort(), started.sort())
    assert.deepEqual(
      Object.keys(scripts).filter((name) => !started.includes(name)),
      ['bun', 'format'],
    )
  })

  it('set up for what the demo is asked to show, and take what it does not know for a mistake', async () => {
    const { exitCode, stderr } = await execa(process.execPath, ['scripts/start.ts', 'demo', '--store', 'kube'], {
      cwd: ROOT,
      reject: false,
    })
    assert.equal(stderr, 'setup: Cannot read --store "kube": want file or etcd; see plumb demo --help')
    assert.equal(exitCode, 1)
  })

  it('need no JavaScript and no shell script of ours: one line of sh finds Bun, the rest is TypeScript', () => {
    assert.match(scripts.bun, /exec \$b scripts\/start\.ts$/)
    const others = [
      ...new Glob('{lib,plugins,agent,cli,scripts,bench,test}/**/*.{js,mjs,cjs,sh,bash,py}').scanSync({ cwd: ROOT }),
    ].filter((name) => !name.includes('/generated/'))
    assert.deepEqual(others, [])
  })
})
