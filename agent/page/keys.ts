import { useLayoutEffect } from 'preact/hooks'

/** What the keys do on a page with so many views, in the order of the help. */
export function helpOf(views: number): readonly (readonly [keys: string, what: string])[] {
  return [
    ['/', 'search'],
    ['?', 'this help'],
    [`1 to ${views}`, 'the views'],
    ['j k', 'the next row, the row before'],
    ['Enter', 'open the row'],
    ['Esc', 'back: from the search, from one thing to all of them, from the search words'],
    ['!', 'problems only, or all'],
    ['Space', 'pause, or go on'],
    ['c', 'copy the command of the selected row, else the first one'],
    ['y', 'copy a link to what the page shows'],
  ]
}

/** Calls `pressed` with each key that is no text: none in a field, none with Ctrl, Alt or Meta. */
export function useKeys(pressed: (key: string) => boolean): void {
  useLayoutEffect(() => {
    const down = (event: KeyboardEvent) => {
      const { target, key, ctrlKey, altKey, metaKey } = event
      if (ctrlKey || altKey || metaKey || event.defaultPrevented) return
      const element = target instanceof HTMLElement ? target : undefined
      const isField = element?.matches('input, select, textarea, [contenteditable]') === true
      if (isField && key !== 'Escape') return
      // A button in focus takes these keys itself.
      if ((key === 'Enter' || key === ' ') && element?.matches('button, a, summary')) return
      if (pressed(key)) event.preventDefault()
    }
    addEventListener('keydown', down)
    return () => removeEventListener('keydown', down)
  })
}

/** The key of the row that is `step` rows away from the selected one. The first row when none is selected. */
export function nextRow(selected: string, step: 1 | -1): string | undefined {
  const rows = [...document.querySelectorAll<HTMLElement>('main tbody tr[data-key]')]
  const at = rows.findIndex((row) => row.dataset['key'] === selected)
  const next = rows[at < 0 ? 0 : Math.min(Math.max(at + step, 0), rows.length - 1)]
  next?.scrollIntoView({ block: 'nearest' })
  return next?.dataset['key']
}
