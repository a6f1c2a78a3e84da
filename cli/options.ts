import { parseArgs } from 'node:util'
import type { Io } from '../lib/cni/call.ts'
import { ValueError } from '../lib/text/errors.ts'
import { suggestion } from '../lib/text/shape.ts'
import { table } from './output.ts'

interface Option {
  readonly type: 'string' | 'boolean'
  readonly short?: string
  readonly multiple?: true
  /** The placeholder for the value in the help text. */
  readonly value?: string
  readonly about: string
}
/**
 * The options of all commands. Each command takes some of them. A description may name an environment variable of
 * cnitool. That variable counts when the option is not given.
 */
const options = {
  ifname: {
    type: 'string',
    short: 'i',
    value: 'NAME',
    about: 'interface name in the container (CNI_IFNAME, else eth0)',
  },
  'container-id': {
    type: 'string',
    value: 'ID',
    about: 'container id (else made from the path of NETNS as cnitool makes it)',
  },
  'cap-args': {
    type: 'string',
    value: 'JSON',
    about: 'capability arguments, such as {"ips":["10.1.0.9/24"]} (CAP_ARGS)',
  },
  'port-mapping': {
    type: 'string',
    multiple: true,
    value: '[IP:]HOST:CONTAINER[/PROTO]',
    about: 'publish a port: 8080:80/tcp; may be repeated',
  },
  args: { type: 'string', value: 'K=V;…', about: 'arguments for every plugin (CNI_ARGS)' },
  lenient: { type: 'boolean', about: 'let plugins pass over keys that they do not know, as they do for a runtime' },
  del: { type: 'boolean', about: 'what del would run, not add' },
  'prev-result': {
    type: 'string',
    value: 'FILE',
    about: "what a plugin or pool that is not plumb's answers: a result as JSON; - is stdin",
  },
  rules: { type: 'boolean', about: 'show the firewall rules that are loaded when they are not there' },
  valid: { type: 'string', multiple: true, value: 'ID:IFNAME', about: 'an attachment that is in use; may be repeated' },
  'valid-file': {
    type: 'string',
    value: 'FILE',
    about: 'the same from a file, one per line, or a JSON list of {containerID, ifname}; - is stdin',
  },
  all: {
    type: 'boolean',
    about: 'no attachment is in use: every address and rule of the network goes, whatever runtime made it',
  },
  'dry-run': { type: 'boolean', about: 'only say what would be removed' },
  'with-plumb': { type: 'boolean', about: 'install the program plumb beside the plugins too' },
  tools: { type: 'boolean', about: 'bring ip, nft and the other tools of this machine too, for a node that has none' },
  purge: { type: 'boolean', about: 'remove also all that plumb made on this node' },
  force: { type: 'boolean', about: 'also while pods live that plumb attached: with --purge they lose their network' },
  daemonset: {
    type: 'string',
    value: 'NAMESPACE/NAME',
    about: 'in a pod: wait until this DaemonSet has run plumb uninstall on every node',
  },
  wait: { type: 'string', value: 'SECONDS', about: 'with --daemonset, for so long (240)' },
  'conf-dir': {
    type: 'string',
    value: 'DIR',
    about: 'where networks are configured (NETCONFPATH, else /etc/cni/net.d)',
  },
  'bin-dir': {
    type: 'string',
    multiple: true,
    value: 'DIR[:DIR…]',
    about: 'where plugins are; may be repeated (CNI_PATH, else /opt/cni/bin)',
  },
  'state-dir': { type: 'string', value: 'DIR', about: 'where it is noted what was installed (/var/lib/plumb)' },
  'cache-dir': {
    type: 'string',
    value: 'DIR',
    about: 'where attachments are remembered, in DIR/results (/var/lib/cni)',
  },
  socket: { type: 'string', value: 'PATH', about: 'where the agent of this node answers (/run/plumb/agent.sock)' },
  'policy-socket': {
    type: 'string',
    value: 'PATH',
    about: 'where the agent answers questions about policy (/run/plumb/policy.sock)',
  },
  'subnet-file': {
    type: 'string',
    value: 'FILE',
    about: 'where the agent writes the subnet of this node (/run/flannel/subnet.env)',
  },
  store: { type: 'string', value: 'file|etcd', about: 'where the nodes have their leases, only there' },
  timeout: { type: 'string', value: 'SECONDS', about: 'for each plugin call (120)' },
  watch: { type: 'boolean', about: 'answer again at every change, until Ctrl-C; with --json one line each' },
  since: { type: 'string', value: 'TIME', about: 'how far back logs go, such as 30m or 2d (1h)' },
  output: {
    type: 'string',
    short: 'o',
    value: 'FILE',
    about: 'where to write it (plumb-sysdump-NODE-TIME.tar.gz in this folder); - is stdout',
  },
  anonymous: { type: 'boolean', about: 'replace addresses and the names of nodes, pods, namespaces and Services' },
  'kubeconfig-file': {
    type: 'string',
    value: 'FILE',
    about: "the way to the API server (the agent's own, else the service account of the pod)",
  },
  agents: {
    type: 'string',
    value: 'HOST:PORT,…',
    about: 'the agents at these addresses; or the path of a file with one per line',
  },
  port: { type: 'string', value: 'PORT', about: 'where to serve the page on 127.0.0.1 (9470)' },
  'token-file': {
    type: 'string',
    value: 'FILE',
    about: 'the token that these agents want (their --status-token-file)',
  },
  kubeconfig: {
    type: 'string',
    value: 'FILE',
    about: 'all agents of the cluster, by port-forward (with --context also KUBECONFIG, else ~/.kube/config)',
  },
  context: { type: 'string', value: 'NAME', about: 'the context of the kubeconfig (its current one)' },
  once: { type: 'boolean', about: 'print one look as text, without a terminal' },
  far: {
    type: 'string',
    multiple: true,
    value: 'NAME=COMMAND',
    about: 'another node, and the command that runs plumb there; may be repeated',
  },
  size: { type: 'string', value: 'BYTES', about: 'send a packet of so many bytes that no router may divide' },
  live: { type: 'boolean', about: 'send nothing: wait for a packet that a program sends, and follow it' },
  dropped: { type: 'boolean', about: 'send nothing: count the packets of pods that this node drops, by reason' },
  for: { type: 'string', value: 'SECONDS', about: 'with --live or --dropped: look so long (20)' },
  throughput: {
    type: 'boolean',
    about: 'measure one TCP stream for a second each way between nodes, one after another',
  },
  quick: { type: 'boolean', about: 'only from pod to pod' },
  packets: {
    type: 'boolean',
    about: 'send packets between pods, nodes and Services first, and follow those that are lost',
  },
  nodes: { type: 'string', value: 'NAME,NAME…', about: 'only between these nodes, of this one and those of --far' },
  from: { type: 'string', value: 'pods|nodes', about: 'nodes: only from node to node, without test pods (pods)' },
  'cluster-domain': { type: 'string', value: 'DOMAIN', about: 'the domain of the cluster in DNS (cluster.local)' },
  outside: {
    type: 'string',
    multiple: true,
    value: 'ADDRESS[:PORT]',
    about: 'an address outside of the cluster that answers echo requests, or takes connections; may be repeated',
  },
  junit: { type: 'string', value: 'FILE', about: 'write the results there, as JUnit XML' },
  json: { type: 'boolean', about: 'answer with JSON, errors too' },
  help: { type: 'boolean', short: 'h', about: 'this text' },
} as const satisfies Record<string, Option>

/** An option as a shell completes it, with its dashes. `value` is the placeholder for its value. */
export interface Choice {
  readonly word: string
  readonly about: string
  readonly value?: string
}
/** What may follow a command on the command line. */
export interface Grammar {
  readonly options: readonly Choice[]
  /**
   * Placeholders for the words that are not options, in order, such as NETWORK. Lowercase words with `|` between them
   * are the words themselves.
   */
  readonly words?: readonly string[]
  readonly commands?: Readonly<Record<string, { readonly about: string; readonly grammar: Grammar }>>
}

/** The name of an option, without its dashes. */
export type OptionName = keyof typeof options
/** The given options by name, and the words that are not options. */
export interface Given {
  readonly values: {
    readonly [K in OptionName]?: (typeof options)[K] extends { multiple: true }
      ? string[]
      : (typeof options)[K]['type'] extends 'boolean'
        ? boolean
        : string
  }
  readonly words: readonly string[]
}

/**
 * Parses a command line. Throws ValueError for an option that the command does not have. The error names the nearest
 * option and the command's `--help`.
 */
export function readOptions(argv: readonly string[], names: readonly OptionName[], command: string): Given {
  const config = Object.fromEntries(names.map((name) => [name, options[name]])) as Record<string, Option>
  const args = names.includes('json') && !names.includes('output') ? asJson(argv) : [...argv]
  try {
    const { values, positionals } = parseArgs({ args, options: config, allowPositionals: true })
    return { values: values as Given['values'], words: positionals }
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    const [, dashes = '--', name = ''] = /'(-{1,2})([^' ]*)/.exec(message) ?? []
    const isUnknown = code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION'
    const hint = suggestion(name, new Map(names.map((one) => [one, `--${one}`])))
    const said = message.replace(/\.? *$/, '').replace(/\n.*/s, '')
    const text = isUnknown ? `${command} has no option ${dashes}${name}${hint}` : said
    throw new ValueError(`${text}; see ${command} --help`, { cause })
  }
}

// kubectl has `-o json` and `--output=json`. Users of it type the same here.
function asJson(argv: readonly string[]): string[] {
  return argv.flatMap((one, at) => {
    if (/^(-o=?|--output=)json$/.test(one)) return '--json'
    if (/^(-o|--output)$/.test(one) && argv[at + 1] === 'json') return '--json'
    return one === 'json' && /^(-o|--output)$/.test(argv[at - 1] ?? '') ? [] : one
  })
}

/** Whether a command line asks for JSON. */
export function wantsJson(argv: readonly string[]): boolean {
  return asJson(argv).includes('--json')
}

/** What an option says in a command where it means something else than in others. */
export type Abouts = Partial<Readonly<Record<OptionName, Pick<Option, 'about' | 'value'>>>>

/** Formats the help text of these options. */
export function describeOptions(names: readonly OptionName[], abouts: Abouts = {}): string {
  const rows = names.map((name): string[] => {
    const { short, value, about }: Option = { ...options[name], ...abouts[name] }
    return [`  ${short ? `-${short}, ` : '    '}--${name}${value ? ` ${value}` : ''}`, about]
  })
  return table([], rows)
}

/** The same options, as a shell completes them. */
export function choicesOf(names: readonly OptionName[], abouts: Abouts = {}): Choice[] {
  return names.map((name) => {
    const { value, about }: Option = { ...options[name], ...abouts[name] }
    return { word: `--${name}`, about, ...(value !== undefined && { value }) }
  })
}

/** What the list of commands says of one, as `entry` in its file. `npm run tables` copies it to `commands.ts`. */
export interface Entry {
  /** The place in the list. No two commands have the same. */
  readonly place: number
  /** What the command is for, without a full stop. */
  readonly about: string
}

/** A command of the executable. */
export interface Command {
  readonly about: string
  /**
   * Imports the file of the command only when the user runs it. So no command loads the libraries of another command.
   */
  load(): Promise<{ run(argv: readonly string[], plugin: Io['plugin']): Promise<number>; readonly grammar: Grammar }>
}
