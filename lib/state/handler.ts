import type { IfName, Netns } from '../text/values.ts'

/** One line for a batch tool. */
export interface Line {
  readonly text: string
  /** What the tool says when it is already so: no failure then. */
  readonly unless?: RegExp
  /** Only where the namespace has no link of this name. */
  readonly absent?: IfName
  /** The namespace of the tool that gets it, when that is not the resource's: a link of a pod is made by the node. */
  readonly ns?: Netns
  /** What is to be done instead when `unless` was the answer. */
  readonly otherwise?: readonly Line[]
}

/** What every resource says: its kind, and the namespace that it lives in. */
export interface Named {
  readonly kind: string
  readonly ns: Netns
}

/** Everything plumb knows about one kind of kernel object. */
export interface Handler<R extends Named> {
  /** The program that takes the lines; `file` for what is written below /proc/sys. */
  readonly tool: 'ip' | 'ip6' | 'bridge' | 'nft' | 'file' | 'conntrack' | 'iptables' | 'tc' | 'firewalld'
  /** What it is called in messages, without the words of any tool: `link eth0 in the pod`. */
  title(resource: R): string
  /** What a line is for, in a few words (`plumb cni explain`): of the resource that it makes or, when it is `gone`, removes. */
  purpose(resource: R, line: Line, gone: boolean): string
  /** It goes with its link: once that is gone no process is started to remove it. */
  readonly goesWithLink?: true
  /** Where it is not the same for all: `ip6` is a process of its own, for IPv6. */
  toolOf?(resource: R): Handler<R>['tool']
  /** What makes it this one: two resources with one key are the same object. */
  key(resource: R): string
  put(resource: R): readonly Line[]
  drop(resource: R): readonly Line[]
  /** What makes one that is there, and ours, as it should be; none when it is. Absent: `put` does. */
  change?(want: R, have: R): readonly Line[]
  /** The command that shows it; the same text for resources that one command shows. Empty: `read` sees for itself. */
  ask(resource: R): string
  /** One row of the answer, as the resource it describes for what `want` asks. */
  read(row: unknown, want: R): R | undefined
}

/** The end of a title: where a resource is that does not live on the node. */
export function inPodOf(ns: Netns): string {
  return ns === 'host' ? '' : ' in the pod'
}
