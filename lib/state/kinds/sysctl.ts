import type { Handler, Sysctl } from '../resource.ts'

/** Sysctls below /proc/sys/net, written as files in their namespace: no process is started for them. They are put back only where it is noted what they were: others may rely on them. */
export const sysctl: Handler<Sysctl> = {
  tool: 'file',
  key: ({ ns, name }) => `sysctl ${ns} ${name}`,
  put: ({ name, value, through }) => [{ text: `net/${through ?? name} = ${value}` }],
  drop: ({ name, before, stays }) => (before === undefined || stays ? [] : [{ text: `net/${name} = ${before}` }]),
  ask: ({ name }) => `net/${name}`,
  // The kernel puts tabs between several numbers.
  read: (row, want) => ({ ...want, value: words(String(row)) === words(want.value) ? want.value : String(row) }),
}

function words(value: string): string {
  return value.trim().split(/\s+/).join(' ')
}
