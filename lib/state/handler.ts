import type { IfName, Netns } from '../text/values.ts'

/** One line for a batch tool. */
export interface Line {
  readonly text: string
  /** The tool's message when the wanted state exists already. That is no failure. */
  readonly unless?: RegExp
  /** The line runs only when the namespace has no link of this name. */
  readonly absent?: IfName
  /** The namespace in which the tool runs, when it is not the resource's. The node's `ip` makes the link of a pod. */
  readonly ns?: Netns
  /** The lines to run instead when the tool answered `unless`. */
  readonly otherwise?: readonly Line[]
}

/** The keys of every resource: its kind and its namespace. */
export interface Named {
  readonly kind: string
  readonly ns: Netns
}

/** Everything plumb knows about one kind of kernel object. */
export interface Handler<R extends Named> {
  /**
   * The program that reads the lines or has them as its words, `file` for writes below /proc/sys, or `agent` for questions to the node agent.
   */
  readonly tool:
    | 'ip'
    | 'ip6'
    | 'bridge'
    | 'nft'
    | 'file'
    | 'conntrack'
    | 'iptables'
    | 'tc'
    | 'wg'
    | 'firewalld'
    | 'agent'
  /** The resource's name in messages, without words of a tool: `link eth0 in the pod`. */
  title(resource: R): string
  /** The purpose of a line in a few words, for `plumb cni explain`. `gone` says that the line removes the resource. */
  purpose(resource: R, line: Line, gone: boolean): string
  /** The kernel removes the resource together with its link. No process is started for it when the link is gone. */
  readonly goesWithLink?: true
  /** The tool of one resource, when not all of the kind use the same. `ip6` is a separate process for IPv6. */
  toolOf?(resource: R): Handler<R>['tool']
  /** The identity of the resource. Two resources with the same key are the same kernel object. */
  key(resource: R): string
  put(resource: R): readonly Line[]
  drop(resource: R): readonly Line[]
  /**
   * The lines that correct an existing resource of plumb. Empty when it is right. Absent when those of `put` do that.
   */
  change?(want: R, have: R): readonly Line[]
  /**
   * The command that shows the resource. Resources that one command shows have the same text. Empty when `read` looks
   * by itself.
   */
  ask(resource: R): string
  /** Reads one row of the answer as a resource, with the keys that `want` has. */
  read(row: unknown, want: R): R | undefined
}

/** The end of a title, for a resource that is not on the node. */
export function inPodOf(ns: Netns): string {
  return ns === 'host' ? '' : ' in the pod'
}
