import { readFileSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { parse as parseYaml } from 'yaml'
import { listFiles } from '../../lib/os/reading.ts'
import { isSensitive, type Redactor } from './redactor.ts'

/** Files that have secrets on a usual node. A folder stands for its files. */
const PLACES = [
  '/etc/kubernetes',
  '/etc/kubernetes/pki',
  '/var/lib/kubelet/kubeconfig',
  '/var/lib/kubelet/pki',
  '/etc/rancher/k3s/k3s.yaml',
  '/etc/rancher/node/password',
  '/var/run/secrets/kubernetes.io/serviceaccount/token',
  '/run/flannel/wgkey',
  '/etc/plumb',
  '/etc/wireguard',
  '/etc/etcd',
  '/etc/default/etcd',
]
/** So many files of a folder are read. A store may have a file for each node. */
const MOST_FILES = 1000
/** A larger file is no secret and no configuration, in bytes. */
const LARGEST = 1_048_576

/**
 * Reads the secrets of this node, so that they are removed from all texts. `argvs` are the command lines of the
 * agents, `pids` their processes, `stateDirs` the folders of their state. Nothing of what it reads gets into the
 * archive. What cannot be read is passed over.
 */
export function learnSecrets(
  redactor: Redactor,
  {
    argvs,
    pids,
    stateDirs,
  }: { argvs: readonly (readonly string[])[]; pids: readonly number[]; stateDirs: readonly string[] },
): void {
  // Those of the agent first: only so many are remembered.
  for (const pid of pids)
    for (const line of textOf(`/proc/${pid}/environ`)?.split('\0') ?? []) {
      const [name = '', ...value] = line.split('=')
      if (isSensitive(name)) redactor.learn(value.join('='))
    }
  const files = new Set([...argvs.flatMap(filesOf), ...stateDirs, ...PLACES])
  for (const path of files) for (const file of [path, ...inside(path)]) learnFile(redactor, file)
}

// What an argument names: a configuration, a key, a file with a password.
function filesOf(argv: readonly string[]): string[] {
  return argv.flatMap((word) => /^(?:-{1,2}[\w-]+=)?(\/.*)$/.exec(word)?.[1] ?? [])
}

function inside(path: string): string[] {
  try {
    return listFiles(path)
      .slice(0, MOST_FILES)
      .map((name) => `${path}/${name}`)
  } catch {
    return []
  }
}

function learnFile(redactor: Redactor, path: string): void {
  const text = textOf(path)
  if (text === undefined) return
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  // A file of a key or a password has nothing else. A private key in PEM is known by its first line, too.
  if (lines.length <= 2 && isSensitive(path.replaceAll('/', ' ').replace(/key$/, 'private-key')))
    for (const line of lines) redactor.learn(line)
  for (const [, line = ''] of text.matchAll(/PRIVATE KEY-----\s+([\w+/=]{16,})/g)) redactor.learn(line)
  const value = parsed(text)
  if (value !== undefined) redactor.json(value)
  redactor.text(text)
  // Files that a configuration names, such as that of a BGP session's password.
  for (const [, name = '', file = ''] of text.matchAll(
    /([\w-]*(?:password|token|key)[\w-]*)["']?\s*[:=]\s*["']?([\w./-]+)/gi,
  )) {
    const named = /file$/i.test(name) ? textOf(resolve(dirname(path), file)) : undefined
    for (const line of named?.split('\n') ?? []) redactor.learn(line)
  }
}

function parsed(text: string): unknown {
  if (!/^[\s#]*[\w"'{-]/.test(text) || text.includes('PRIVATE KEY')) return undefined
  try {
    const value: unknown = parseYaml(text)
    return typeof value === 'object' ? value : undefined
  } catch {
    return undefined
  }
}

function textOf(path: string): string | undefined {
  try {
    const found = statSync(path)
    if (!path.startsWith('/proc/') && (!found.isFile() || found.size > LARGEST)) return undefined
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
