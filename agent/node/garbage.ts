import { edenGC } from 'bun:jsc'
import { slim } from './memory-pages.ts'

// Fewer leave too little behind to be worth the time.
const MANY = 1000

/** Collects what work on so many things left behind, when they were many: left to itself the heap grows by tens of megabytes first. Milliseconds. */
export function tidy(count: number): void {
  if (count < MANY) return
  edenGC()
  slim()
}

/** Gives memory back after a step that changed so many things, when they were many. Tens of milliseconds. */
export function giveBack(count: number): void {
  if (count < MANY) return
  Bun.gc(true)
  slim()
}
