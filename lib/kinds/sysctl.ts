import type { Handler, Sysctl } from '../state.ts'

/** Sysctls below /proc/sys/net, written as files in their namespace: no process is started for them. They are never put back: others may rely on them. */
export const sysctl: Handler<Sysctl> = {
  tool: 'file',
  key: ({ ns, name }) => `sysctl ${ns} ${name}`,
  put: ({ name, value, through }) => [{ text: `net/${through ?? name} = ${value}` }],
  drop: () => [],
  ask: ({ name }) => `net/${name}`,
  read: (row, want) => ({ ...want, value: String(row) }),
}
