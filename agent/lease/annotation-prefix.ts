import { shown, ValueError } from '../../lib/text/errors.ts'

/**
 * The annotation prefix as flannel completes it: a name alone gets a slash, one with a slash a dash. Throws ValueError.
 */
export function prefixOf(text: string): string {
  if (
    !/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(\/([a-zA-Z0-9]([\w.-]*[a-zA-Z0-9])?)?)?[/-]?$/.test(text) ||
    text.split('/').length > 2
  )
    throw new ValueError(`${shown(text)}: want a prefix such as flannel.alpha.coreos.com or example.org/flannel`)
  if (text.endsWith('/') || text.endsWith('-')) return text
  return `${text}${text.includes('/') ? '-' : '/'}`
}
