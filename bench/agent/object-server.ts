/** The objects of one kind: what the API calls it, and its list. */
export interface Kind {
  readonly kind: string
  readonly apiVersion: string
  readonly items: object[]
}
/** An API server that holds lists and lets clients watch them. */
export interface ObjectServer {
  /** Changes the list of a path, and tells those who watch it. MODIFIED and DELETED look for the object's uid. */
  announce(type: 'ADDED' | 'MODIFIED' | 'DELETED', path: string, object: object): void
}

const uidOf = (object: object) => (object as { metadata?: { uid?: string } }).metadata?.uid

/**
 * Serves lists by path on 127.0.0.1. `version` gives the newest resourceVersion. The list of /api/v1/nodes has one
 * Node, which has its own path, too.
 */
export function serveObjects(port: number, kinds: Readonly<Record<string, Kind>>, version: () => number): ObjectServer {
  const watches = new Set<{ readonly path: string; send(line: string): void }>()
  Bun.serve({
    hostname: '127.0.0.1',
    port,
    idleTimeout: 0,
    fetch(request) {
      const { pathname, searchParams } = new URL(request.url)
      const known = kinds[pathname] ?? (pathname.startsWith('/api/v1/nodes/') ? undefined : null)
      if (known === undefined)
        return Response.json({ kind: 'Node', apiVersion: 'v1', ...kinds['/api/v1/nodes']?.items[0] })
      if (known === null)
        return Response.json(
          { kind: 'Status', apiVersion: 'v1', status: 'Failure', code: 404, reason: 'NotFound' },
          { status: 404 },
        )
      const { kind, apiVersion, items } = known
      // A client that wants its list from a watch goes back to lists.
      if (searchParams.get('sendInitialEvents') === 'true')
        return Response.json(
          {
            kind: 'Status',
            apiVersion: 'v1',
            status: 'Failure',
            code: 422,
            reason: 'Invalid',
            message: 'sendInitialEvents is forbidden',
          },
          { status: 422 },
        )
      if (searchParams.get('watch') !== 'true' && searchParams.get('watch') !== '1')
        return Response.json({
          kind: `${kind}List`,
          apiVersion,
          metadata: { resourceVersion: String(version()) },
          items,
        })
      let end = () => {}
      const stream = new ReadableStream<Uint8Array>({
        start(sink) {
          const watch = { path: pathname, send: (line: string) => sink.enqueue(new TextEncoder().encode(`${line}\n`)) }
          watches.add(watch)
          end = () => watches.delete(watch)
        },
        cancel: () => end(),
      })
      return new Response(stream, { headers: { 'Content-Type': 'application/json' } })
    },
  })
  return {
    announce(type, path, object) {
      const { kind, apiVersion, items } = kinds[path] as Kind
      const at = type === 'ADDED' ? items.length : items.findIndex((one) => uidOf(one) === uidOf(object))
      if (at < 0) throw new Error(`the API server of the bench has no ${kind} ${uidOf(object)}`)
      items.splice(at, 1, ...(type === 'DELETED' ? [] : [object]))
      const line = JSON.stringify({ type, object: { kind, apiVersion, ...object } })
      for (const watch of watches) if (watch.path === path) watch.send(line)
    },
  }
}
