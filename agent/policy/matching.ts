import type { Labels, Selector } from '../cluster/reading.ts'

/** Whether labels are what a selector requires (meta/v1 LabelSelector). */
export function matches(selector: Selector, labels: Labels): boolean {
  return selector.every(({ key, operator, values }) => {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined
    if (operator === 'Exists') return value !== undefined
    if (operator === 'DoesNotExist') return value === undefined
    const isIn = value !== undefined && values.includes(value)
    return operator === 'In' ? isIn : !isIn
  })
}
