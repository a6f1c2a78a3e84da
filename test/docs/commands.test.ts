// lane: netns
// Tests the commands in README.md and docs.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Glob } from 'bun'
import { inNamespaces, type Namespace } from '../support/harness.ts'

const ROOT = join(import.meta.dir, '../..')
const SCRIPTS = Object.keys(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).scripts)
const DOCUMENTS = ['*.md', 'docs/**/*.md'].flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: ROOT })]).sort()

describe('what the documents say', () => {
  for (const name of DOCUMENTS) {
    const blocks = fenced(readFileSync(join(ROOT, name), 'utf8'))
    if (blocks.length === 0) continue
    it(
      `${name}: every sh and json block works, top to bottom`,
      inNamespaces(['node', 'pod'], async ({ node, pod }, test) => {
        test.timeout(60_000)
        for (const { language, text, line } of blocks) {
          if (language === 'sh') await runs(node, text, `${name}:${line}`)
          else await serves(node, pod, text, `${name}:${line}`)
        }
      }),
    )
  }

  it('README.md shows how to install, and is among them', () => {
    assert.ok(DOCUMENTS.includes('README.md'))
    assert.match(readFileSync(join(ROOT, 'README.md'), 'utf8'), /^```sh\n[^`]*dist\/plumb install --with-plumb$/m)
  })
  it('npm scripts are named in package.json', () => {
    assert.throws(() => withoutNpm('npm run nope'), /package.json/)
    assert.equal(withoutNpm('npm test\nip link'), '\nip link')
  })
})

async function runs(node: Namespace, text: string, at: string): Promise<void> {
  const { status, stdout, stderr } = await node.exec(['sh', '-eux'], { stdin: withoutNpm(text), cwd: ROOT })
  assert.equal(status, 0, `${at}:\n${stdout}${stderr}`)
}

// The two commands and the gate set the machine up and run this very test: they are checked to exist.
function withoutNpm(text: string): string {
  return text.replace(/^npm (?:run )?([\w:]+).*$/gm, (_, script) => {
    assert.ok(SCRIPTS.includes(script) || script === 'ci', `package.json has no script ${script}`)
    return ''
  })
}

// A network is added to a namespace and removed again; other JSON has to be JSON.
async function serves(node: Namespace, pod: Namespace, text: string, at: string): Promise<void> {
  const conf = JSON.parse(text)
  if (typeof conf.name !== 'string' || !(conf.plugins || conf.type)) return
  const dir = `/run/docs-${Bun.hash(text).toString(16)}`
  mkdirSync(dir)
  writeFileSync(join(dir, conf.plugins ? '10.conflist' : '10.conf'), text)
  for (const command of ['add', 'del']) {
    const { status, stdout, stderr } = await node.exec(
      [join(ROOT, 'dist/plumb'), 'cni', command, conf.name, pod.path],
      { env: { NETCONFPATH: dir, CNI_PATH: join(ROOT, 'dist') } },
    )
    assert.equal(status, 0, `${at}: ${command}: ${stdout}${stderr}`)
  }
}

function fenced(markdown: string): { language: string; text: string; line: number }[] {
  return [...markdown.matchAll(/^```(sh|json)\n([\s\S]*?)^```$/gm)].map(
    ({ 1: language = '', 2: text = '', index }) => ({
      language,
      text,
      line: markdown.slice(0, index).split('\n').length,
    }),
  )
}
