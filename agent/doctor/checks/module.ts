import type { Check } from '../check.ts'

/** The backend needs a module that this kernel does not have. The agent says so and waits. */
export const check: Check = {
  code: 'DR6',
  title: 'a kernel module is missing',
  severity: 'error',
  detect({ status }) {
    const sentence = status?.reasons.find((text) => /has no module/.test(text))
    const [, name] = /has no module (\w+)/.exec(sentence ?? '') ?? []
    if (sentence === undefined || name === undefined) return []
    return [
      {
        what: sentence,
        effect: 'this node has no connection to pods of other nodes',
        commands: [
          `modprobe ${name} || apt-get install -y linux-modules-extra-$(uname -r)`,
          `modprobe ${name}`,
          `echo ${name} >/etc/modules-load.d/plumb-${name}.conf`,
        ],
      },
    ]
  },
}
