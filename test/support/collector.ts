import assert from 'node:assert/strict'
import type { OtlpSpan } from '../../agent/telemetry/otlp.ts'
import { inside } from '../../lib/os/netns.ts'
import type { Namespace } from './harness.ts'

/** A collector of OTLP/HTTP on a node. */
export function collector(node: Namespace) {
  const spans: OtlpSpan[] = []
  const server = inside(node.path as never, () =>
    Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      async fetch(request) {
        assert.deepEqual(
          [request.method, new URL(request.url).pathname, request.headers.get('Content-Type')],
          ['POST', '/v1/traces', 'application/json'],
        )
        const { resourceSpans } = (await request.json()) as {
          resourceSpans: { scopeSpans: { spans: OtlpSpan[] }[] }[]
        }
        spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((one) => one.spans)))
        return Response.json({})
      },
    }),
  )
  return { spans, url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) }
}
