import { edenGC } from 'bun:jsc'
import { slim } from './memory-pages.ts'

// Work on fewer objects leaves too little garbage to be worth the time.
const MANY = 1000

/**
 * Collects garbage after work on `count` objects, when they are many. Without this the heap first grows by tens of
 * megabytes. Takes milliseconds.
 */
export function tidy(count: number): void {
  if (count < MANY) return
  edenGC()
  slim()
}

/**
 * Returns memory to the kernel after a step that changed many (`count`) objects. Takes tens of milliseconds.
 */
export function giveBack(count: number): void {
  if (count < MANY) return
  Bun.gc(true)
  slim()
}
