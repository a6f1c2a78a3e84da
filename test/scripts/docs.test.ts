// lane: quick
// Tests the generated pages: scripts.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Glob } from 'bun'
import * as v from 'valibot'
import { common, field } from '../../lib/text/shape.ts'
import { readDifferences, share } from '../../scripts/docs/differences.ts'
import { capabilitiesOf, keysOf } from '../../scripts/docs/keys.ts'
import { table, tables } from '../../scripts/docs/table.ts'
import { otherPages, pages } from '../../scripts/docs.ts'
import { tables as namesOf } from '../../scripts/tables.ts'

const ROOT = join(import.meta.dir, '../..')

describe('tables of names', () => {
  it('are as npm run tables would write them', () => {
    for (const { file, is, want } of namesOf()) assert.equal(is, want, `${file} is not what npm run tables would write`)
  })
})

describe('pages with regions', () => {
  for (const { file, is, want, lacks } of otherPages())
    it(`${file} is as npm run docs would write it, with a description of each row`, () => {
      assert.deepEqual(lacks, [])
      assert.equal(is, want, `${file} is not what npm run docs would write`)
    })
  it('docs/architecture.md has the rooms with their arrows', () => {
    const page = otherPages().find(({ file }) => file === 'docs/architecture.md')
    assert.match(page?.want ?? '', /^ {2}agent_parts --> agent_services$/m)
  })
})

describe('docs/plugins', () => {
  it('has a page for every plugin, each as npm run docs would write it, with a description of every key and code', async () => {
    const all = await pages()
    assert.deepEqual(
      all.filter(({ is }) => is === undefined).map(({ file }) => file),
      [],
    )
    for (const { file, is, want } of all) assert.equal(is, want, `${file} is not what npm run docs would write`)
    assert.deepEqual(
      all.flatMap(({ lacks }) => lacks),
      [],
    )
    const plugins = [...new Glob('plugins/*.ts').scanSync({ cwd: ROOT })].filter((file) => file !== 'plugins/index.ts')
    assert.deepEqual(
      all.map(({ file }) => file).sort(),
      ['docs/plugins/README.md', ...plugins.map((file) => `docs/${file.replace(/\.ts$/, '.md')}`)].sort(),
    )
  })

  it('names in its markers only ids of docs/differences.md, and shows each of its rows somewhere', async () => {
    const rows = readDifferences(readFileSync(join(ROOT, 'docs/differences.md'), 'utf8')).flatMap(({ rows }) => rows)
    const all = await pages()
    const named = all.flatMap(({ want }) =>
      (/<!-- differences(.*?) -->/.exec(want)?.[1] ?? '').split(' ').filter(Boolean),
    )
    const ids = rows.map(({ id }) => id)
    assert.deepEqual(
      named.filter((id) => !ids.includes(id.replace(/^-/, ''))),
      [],
    )
    const shown = new Set(all.flatMap(({ want }) => tables(want).flatMap((found) => found.map((row) => row.join('|')))))
    assert.deepEqual(
      rows.filter(({ cells }) => !shown.has(cells.join('|'))),
      [],
    )
  })

  it('and the other documents link to files that are there', () => {
    const files = ['*.md', 'conf/*.md', 'docs/**/*.md'].flatMap((pattern) => [
      ...new Glob(pattern).scanSync({ cwd: ROOT }),
    ])
    const links = files.flatMap((file) =>
      [...readFileSync(join(ROOT, file), 'utf8').matchAll(/\]\((?!https?:)([^)#]+)/g)].map(([, to = '']) => ({
        file,
        to,
      })),
    )
    assert.ok(links.length > 10)
    assert.deepEqual(
      links.filter(({ file, to }) => !existsSync(join(ROOT, dirname(file), to))),
      [],
    )
  })

  it('their pictures are there, in both themes, with words for who does not see them, and each picture is in a page', () => {
    const files = ['*.md', 'docs/**/*.md'].flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: ROOT })])
    const shown = new Set<string>()
    for (const file of files) {
      const text = readFileSync(join(ROOT, file), 'utf8').replace(/^```[\s\S]*?^```$/gm, '')
      const tags = text.match(/<(img|source)\b[^>]*>/g) ?? []
      for (const tag of tags) {
        const path = join(dirname(file), /\b(?:src|srcset)="([^"]*)"/.exec(tag)?.[1] ?? '')
        assert.ok(existsSync(join(ROOT, path)), `${file}: there is no ${path}`)
        assert.ok(tag.startsWith('<source') || /\balt="[^"]{20,}"/.test(tag), `${file}: ${tag} has no words`)
        shown.add(path)
      }
      for (const picture of text.match(/<picture>[\s\S]*?<\/picture>/g) ?? [])
        assert.match(
          picture,
          /<source media="\(prefers-color-scheme: dark\)" srcset="(.*)-dark\.webp">\s*<img .*src="\1-light/,
        )
    }
    const made = [...new Glob('docs/pictures/*.webp').scanSync({ cwd: ROOT })]
    assert.deepEqual([...shown].sort(), made.sort())
  })
})

describe('keysOf()', () => {
  const shape = v.object({
    ...common,
    mtu: v.optional(field.int(0, 65535), 0),
    mode: v.exactOptional(field.word('', 'l2', 'l3')),
    vlan: field.by((value) => {
      throw new Error(`${String(value)}: invalid VLAN ID (must be between 0 and 4094)`)
    }),
    names: v.optional(v.array(field.text), []),
    ipam: v.optional(v.looseObject({ sets: v.optional(v.array(v.array(v.object({ subnet: field.cidr }))), []) }), {}),
    args: v.optional(v.looseObject({ cni: v.optional(v.looseObject({ mac: v.exactOptional(field.mac) }), {}) }), {}),
    runtimeConfig: v.optional(
      v.looseObject({
        ports: v.optional(v.array(v.object({ port: field.port, proto: v.optional(field.text, 'tcp') })), []),
      }),
      {},
    ),
  })
  const conf = field.whole(shape, () => {}) as never

  it('gives each key, nested ones too, with what its reader wants and its default, without those of every plugin', () => {
    assert.deepEqual(
      keysOf(conf).map(({ path, value, fallback }) => [path, value, fallback]),
      [
        ['mtu', 'a whole number, 0 to 65535', '`0`'],
        ['mode', 'one of l2, l3', ''],
        ['vlan', 'between 0 and 4094', 'required'],
        ['names', 'a list, of each: a string', ''],
        ['ipam', 'an object', ''],
        ['ipam.sets[][].subnet', 'an address with a prefix length such as 10.1.0.0/24 or fd00::/64', 'required'],
        ['args.cni.mac', 'a unicast Ethernet address such as 02:00:0a:f4:00:02', ''],
        ['runtimeConfig.ports[].port', 'a port, 1 to 65535', 'required'],
        ['runtimeConfig.ports[].proto', 'a string', '`tcp`'],
      ],
    )
  })
  it('goes with capabilitiesOf(), what it reads of runtimeConfig', () => {
    assert.deepEqual(capabilitiesOf(conf), ['ports'])
    assert.deepEqual(capabilitiesOf(v.object(common) as never), [])
  })
})

describe('share()', () => {
  const text = `
| id | where | plumb |
| --- | --- | --- |
| \`tap-mac\` | MAC addresses | 1 |
| \`engine\` | \`ipMasq\`, \`backend\` | 2 |
| \`dns\` | DNS of vlan without \`ipMasq\` | 3 |
| \`mac\` | MAC addresses | 4 |
| \`rest\` | CHECK of same-bridge | 5 |

## The plugin tap

| where | plumb |
| --- | --- |
| owners | 6 |

## tap, vlan

| plugin | where | plumb |
| --- | --- | --- |
| vlan | bridge | 7 |
`
  const subject = (type: string, keys: readonly string[], ...marked: string[]) => ({ type, keys, marked })
  it('gives a page the rows that name its plugin, else those that name its keys, and those of its marker; the rest to the common one', () => {
    const parts = readDifferences(text)
    const shared = share(
      parts,
      [
        subject('bridge', ['ipMasq'], 'mac'),
        subject('tap', []),
        subject('vlan', []),
        subject('firewall', ['backend'], '-engine'),
      ],
      ['mac'],
    )
    const numbers = [...shared].map(([type, rows]) => [type, rows.map(({ cells }) => cells.at(-1)).join('')])
    assert.deepEqual(Object.fromEntries(numbers), { '': '45', bridge: '24', tap: '16', vlan: '37', firewall: '' })
  })
})

describe('table()', () => {
  it('is read back by tables() as it was, bars in cells and all', () => {
    const rows = [
      ['`a|b`', ''],
      ['', 'é'],
    ]
    assert.deepEqual(tables(`text\n${table(['key', 'is'], rows)}\nmore`), [[['key', 'is'], ...rows]])
  })
})
