import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openStore, type SubnetStore } from '../../agent/store.ts'
import type { Held } from '../suites/leases.ts'
import { testStore } from '../suites/testStore.ts'

const made: string[] = []
const opened: SubnetStore[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((store) => store.close()))
  for (const dir of made.splice(0)) rmSync(dir, { recursive: true, force: true })
})

/** A network in a fresh folder. */
function network(options: object = {}): Held & { readonly dir: string } {
  const dir = mkdtempSync(join(tmpdir(), 'plumb-network-'))
  made.push(dir)
  return {
    dir,
    async open() {
      const store = await openStore({ store: 'file', dir, ...options })
      opened.push(store)
      return store
    },
    configure: async (text) => writeFileSync(join(dir, 'config'), text),
    async put(key, value) {
      mkdirSync(join(dir, 'subnets'), { recursive: true })
      writeFileSync(join(dir, '.by-hand'), value)
      renameSync(join(dir, '.by-hand'), join(dir, 'subnets', key))
    },
    del: async (key) => rmSync(join(dir, 'subnets', key)),
    async list() {
      const names = readdirSync(dir).includes('subnets') ? readdirSync(join(dir, 'subnets')) : []
      return Object.fromEntries(names.sort().map((name) => [name, readFileSync(join(dir, 'subnets', name), 'utf8')]))
    },
  }
}

describe('the file store', () => {
  testStore('file', async () => network())
})
