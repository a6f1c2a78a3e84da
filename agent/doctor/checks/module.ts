import { defineCheck } from '../check.ts'

/** As the agent says it (lib/text/errors.ts). */
const MISSING = /this kernel has no (?:module|links of type) (\w+)/

/** The backend needs a module that this kernel does not have. The agent says so and waits. */
export const check = defineCheck({
  code: 'DR6',
  title: 'a kernel module is missing',
  severity: 'error',
  reads: ['status'],
  detect({ status }) {
    const sentence = status?.reasons.find((text) => MISSING.test(text))
    const [, name] = MISSING.exec(sentence ?? '') ?? []
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
})
