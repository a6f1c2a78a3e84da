import { statSync } from 'node:fs'
import { listFiles } from '../../lib/os/reading.ts'
import { printable } from '../../lib/text/printable.ts'
import { SECTION } from './redactor.ts'

/** Where kubelet keeps logs: NAMESPACE_POD_UID/CONTAINER/0.log, where 0 counts starts of the container. */
const POD_LOGS = '/var/log/pods'
/** Pods of plumb, in any namespace. */
const OURS = /(^|-)plumb(-|$)/
/** Pods of kube-system on which the network depends: DNS of the cluster, and kube-proxy. Others have logs of users. */
const SYSTEM = /^(coredns|kube-dns|node-local-dns|nodelocaldns|kube-proxy)(-|$)/
/** The files of logs that are read, the newest of each container, and bytes at the end of each one. */
const [MOST_FILES, MOST_OF_CONTAINER, LARGEST_FILE] = [60, 3, 524_288]
/** The most of all, in bytes. */
const LARGEST = 8_388_608

/**
 * The logs of the containers of plumb, of the cluster's DNS and of kube-proxy, each below the name of its file, with the
 * lines of the last `since` seconds. Left out: what kubelet has compressed.
 */
export async function podLogs(since: number, dir = POD_LOGS): Promise<string> {
  const pods = listFiles(dir).filter(isWanted).sort()
  const containers = pods.flatMap((pod) => listFiles(`${dir}/${pod}`).map((name) => `${dir}/${pod}/${name}`))
  const files = containers.flatMap(logsIn).slice(0, MOST_FILES)
  if (files.length === 0) return `${dir} has no log of plumb, of DNS or of kube-proxy.\n`
  const from = Date.now() - since * 1000
  const texts: string[] = []
  let size = 0
  for (const path of files) {
    const text = size > LARGEST ? '(left out: the logs have too much)\n' : await linesOf(path, from)
    size += text.length
    texts.push(`${SECTION}${printable(path)}\n${text}`)
  }
  return texts.join('\n')
}

// No name in Kubernetes has an underscore.
function isWanted(folder: string): boolean {
  const [namespace, pod = ''] = folder.split('_')
  return OURS.test(pod) || (namespace === 'kube-system' && SYSTEM.test(pod))
}

// `1.log` is newer than `0.log`, and `0.log` newer than `0.log.20261128-093000`.
function logsIn(container: string): string[] {
  const names = isFolder(container) ? listFiles(container) : []
  return names
    .filter((name) => /^\d+\.log(\.[\d-]+)?$/.test(name))
    .map((name) => ({ name, at: fileTime(`${container}/${name}`) }))
    .filter(({ at }) => at !== undefined)
    .sort((one, other) => (other.at ?? 0) - (one.at ?? 0))
    .slice(0, MOST_OF_CONTAINER)
    .map(({ name }) => `${container}/${name}`)
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}

function fileTime(path: string): number | undefined {
  const found = statSync(path, { throwIfNoEntry: false })
  return found?.isFile() ? found.mtimeMs : undefined
}

async function linesOf(path: string, from: number): Promise<string> {
  try {
    const file = Bun.file(path)
    const begin = Math.max(0, file.size - LARGEST_FILE)
    const text = await file.slice(begin, file.size).text()
    // The first line of a part has no beginning.
    const lines = (begin > 0 ? text.slice(text.indexOf('\n') + 1) : text).split('\n')
    const recent = whole(lines).filter((line) => line !== '' && (timeOf(line) ?? from) >= from)
    return `${begin > 0 ? '(the beginning is left out)\n' : ''}${recent.map((line) => `${line}\n`).join('')}`
  } catch (cause) {
    return `(cannot be read: ${printable((cause as Error).message)})\n`
  }
}

// The line of a container runtime (`TIME stdout F TEXT`), or JSON of Docker.
function timeOf(line: string): number | undefined {
  const time = Date.parse(/^(\d{4}-\d\d-\d\dT\S+) /.exec(line)?.[1] ?? /"time":"([^"]+)"/.exec(line)?.[1] ?? '')
  return Number.isNaN(time) ? undefined : time
}

// A runtime cuts lines after 16 KiB, and marks all pieces but the last by P. Secrets are looked for in whole lines.
function whole(lines: readonly string[]): string[] {
  const open = new Map<string, string>()
  const all: string[] = []
  for (const line of lines) {
    const [, head = '', stream = '', flag, text = ''] = /^(\S+ (stdout|stderr)) ([PF]) (.*)$/s.exec(line) ?? []
    if (flag === undefined) {
      all.push(line)
      continue
    }
    const before = open.get(stream) ?? `${head} F `
    if (flag === 'P') open.set(stream, before + text)
    else {
      all.push(before + text)
      open.delete(stream)
    }
  }
  return [...all, ...open.values()]
}
