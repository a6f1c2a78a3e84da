/**
 * By how much the limits of tests are longer than they say. The run measures once how slow this machine is now
 * (test/run.ts), and hands that over in PLUMB_PATIENCE: 1 for a machine at rest. A virtual machine in software takes
 * three times as long besides.
 */
export const PATIENCE = Number(process.env['PLUMB_PATIENCE'] ?? 1) * (process.env['PLUMB_GUEST'] ? 3 : 1)

/** A limit of so many milliseconds here and now, for what takes them itself: a program, a request, an AbortSignal. */
export function patient(ms: number): number {
  return Math.round(ms * PATIENCE)
}

/**
 * How long a fixture waits to see that no answer comes. A packet that the kernel drops says nothing, so there is nothing
 * to poll for. Between namespaces of one machine, a packet that passes comes within a millisecond. The rest of the time
 * is for the processes at both ends, which a busy machine runs late.
 */
export const SILENT_MS = patient(100)
