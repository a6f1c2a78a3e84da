import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { execa } from 'execa'

/**
 * Makes the folder `into`, and unpacks the upstream part of a Debian source package there. Returns the version of the
 * package. Downloads go to `work`. apt also reads its sources and keeps its lists in `work`, so the machine's
 * configuration does not change.
 */
export async function unpackSource(name: string, work: string, into: string): Promise<string> {
  const parts = join(work, 'sources.list.d')
  for (const dir of [parts, join(work, 'lists/partial'), into]) mkdirSync(dir, { recursive: true })
  for (const file of globSync([
    '/etc/apt/sources.list',
    '/etc/apt/sources.list.d/*.list',
    '/etc/apt/sources.list.d/*.sources',
  ])) {
    const text = readFileSync(file, 'utf8')
      .replace(/^(Types: .*)\bdeb\b(?!-src)/gm, '$1deb-src')
      .replace(/^deb\s/gm, 'deb-src ')
    writeFileSync(join(parts, basename(file)), text)
  }
  const options = [
    '-qq',
    '-o',
    'Dir::Etc::SourceList=/dev/null',
    '-o',
    `Dir::Etc::SourceParts=${parts}`,
    '-o',
    `Dir::State::Lists=${join(work, 'lists')}`,
    '-o',
    'APT::Sandbox::User=root',
  ]
  await execa('apt-get', [...options, 'update'])
  await execa('apt-get', [...options, 'source', '--download-only', name], { cwd: work })
  const [tarball = ''] = globSync(join(work, `${name}_*.orig.tar.*`)).filter((file) => !file.endsWith('.asc'))
  await execa('tar', ['xf', tarball, '-C', into, '--strip-components=1'])
  return basename(tarball)
    .slice(name.length + 1)
    .replace(/\.orig\.tar\..*/, '')
}
