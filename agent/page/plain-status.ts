import { printable } from '../../lib/text/printable.ts'
import { span } from '../state/phrases.ts'
import { unreachable } from '../state/reachability.ts'
import type { Status } from '../state/status.ts'

/** The place in the page for readers without a script. */
const PLACE = '<!-- plain status -->'

/** Writes the state of the node into the page, as plain HTML for a browser that runs no script. */
export function withPlainStatus(html: string, status: Status): string {
  const { node, version, state, reasons, degraded, findings, peers, started, redacted } = status
  const lost = unreachable(peers).length
  const commands = findings.flatMap((one) => one.commands)
  const lines = [
    `<h1>${escaped(node)}: ${state}</h1>`,
    `<p>plumb ${escaped(version)}, up ${span(Date.now() - started)}. ${peers.length} peers, ${lost} of them unreachable.</p>`,
    list([...reasons, ...degraded]),
    ...(redacted === undefined ? [] : [`<p>${escaped(redacted)}.</p>`]),
    ...(commands.length > 0 ? ['<p>Commands that mend it:</p>', list(commands)] : []),
  ]
  return withoutScript(html, lines.join('\n'))
}

function list(texts: readonly string[]): string {
  return texts.length === 0 ? '' : `<ul>${texts.map((text) => `<li>${escaped(text)}</li>`).join('')}</ul>`
}

/** Writes HTML into a page where only a browser that runs no script shows it. */
export function withoutScript(html: string, content: string): string {
  return html.replace(PLACE, () => content)
}

/** A text as HTML. Names come from other programs. */
export function escaped(text: string): string {
  return printable(text).replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}
