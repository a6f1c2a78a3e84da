// Lets the clock of the counted machine jump by small steps only. When nothing runs there, the clock jumps to the next
// timer. A program that waits for a file of this machine, which takes no time there, would find that its time is over.
// This program is that timer. It is stopped while something is measured.
import { libc } from '../../lib/os/door.ts'

/** With a step of a quarter of a millisecond, the clock of an idle machine is about as fast as this one's. */
const STEP_US = 250
for (const { usleep } = libc(); ; ) usleep(STEP_US)
