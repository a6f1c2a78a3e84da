// lane: quick
// Tests lib/os/drop-reasons.ts.
import assert from 'node:assert/strict'
import { dropsIn, dropsOf } from '../../../lib/os/drop-reasons.ts'

describe('dropsOf()', () => {
  it('reads the reasons for packets that came in by a link in one size, also by a bridge, and for no others', () => {
    const line = (at: number, text: string) => `  ksoftirqd/0-9  [000] ..s1.  ${at.toFixed(6)}: ${text}`
    const arrives = (at: number, dev: string, packet: string, len: number) =>
      line(at, `netif_receive_skb: dev=${dev} skbaddr=${packet} len=${len}`)
    const drop = (at: number, packet: string, reason: string) =>
      line(at, `kfree_skb: skbaddr=${packet} rx_sk=0 protocol=2048 location=ip_rcv+0x1/0x2 reason: ${reason}`)
    const text = [
      arrives(1, 'va', 'f1', 84),
      arrives(1.00001, 'br0', 'f1', 84),
      drop(1.00002, 'f1', 'IP_RPFILTER'),
      // The address is used again: by a packet that did not come in, by one of another size, and much later.
      drop(1.00003, 'f1', 'NO_SOCKET'),
      arrives(2, 'va', 'f2', 84),
      arrives(2.00001, 'va', 'f2', 60),
      drop(2.00002, 'f2', 'TC_INGRESS'),
      arrives(3, 'va', 'f3', 84),
      drop(4, 'f3', 'NEIGH_FAILED'),
      arrives(5, 'vb', 'f4', 84),
      drop(5.00001, 'f4', 'IP_CSUM'),
    ].join('\n')
    assert.deepEqual(dropsOf(text, [{ link: 'va', bytes: 84 }]), [{ where: 'ip_rcv', reason: 'IP_RPFILTER' }])
  })
})

describe('dropsIn()', () => {
  it('reads the reason and the function, with and without an offset', () => {
    const text = `# tracer: nop
           plumb-7  [001] b.s31  19.1: tracing_mark_write: plumb-trace-
           plumb-7  [001] b.s31  19.2: kfree_skb: skbaddr=00000000 rx_sk=0 protocol=2048 location=ip_rcv_finish_core+0x1b2/0x420 reason: IP_RPFILTER
           plumb-7  [001] b.s31  19.3: kfree_skb: skbaddr=00000000 protocol=2048 location=tcp_v4_rcv reason: NO_SOCKET\n`
    assert.deepEqual(dropsIn(text), [
      { where: 'ip_rcv_finish_core', reason: 'IP_RPFILTER' },
      { where: 'tcp_v4_rcv', reason: 'NO_SOCKET' },
    ])
  })
})
