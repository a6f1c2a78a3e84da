/**
 * A setting. The flag and the key in the settings file have its name. The environment variable is FLANNELD_ and the
 * name in capitals, with "_" for "-".
 */
export interface Flag {
  /** `flag` is true or false. `texts` may be repeated. `list` is separated by commas and may be repeated too. */
  readonly kind: 'text' | 'flag' | 'number' | 'texts' | 'list'
  /** The default value, as a user would write it. An empty string means no value. */
  readonly fallback: string
  /** The description in the help output. `value` is the placeholder for the value there. */
  readonly about: string
  readonly value?: string
  /** The value is never shown. */
  readonly secret?: true
  /**
   * Set for a flag of flanneld without an effect in plumb. It gives the reason, and the agent tells this reason to the
   * user who sets the flag.
   */
  readonly idle?: string
}

const ENGINE = 'the rules are nftables, which are watched as they change'

/** All settings. The flags of flanneld come first, with flanneld's names and defaults (flannel 0.28, main.go). */
export const FLAGS = {
  'etcd-endpoints': {
    kind: 'list',
    fallback: 'http://127.0.0.1:4001,http://127.0.0.1:2379',
    value: 'URL,…',
    about: 'etcd servers',
  },
  'etcd-prefix': {
    kind: 'text',
    fallback: '/coreos.com/network',
    value: 'KEY',
    about: 'where the network stands in etcd',
  },
  'etcd-keyfile': { kind: 'text', fallback: '', value: 'FILE', about: 'key of the client certificate for etcd' },
  'etcd-certfile': { kind: 'text', fallback: '', value: 'FILE', about: 'client certificate for etcd' },
  'etcd-cafile': {
    kind: 'text',
    fallback: '',
    value: 'FILE',
    about: 'authority that signed the certificates of the etcd servers',
  },
  'etcd-username': { kind: 'text', fallback: '', value: 'NAME', about: 'user of etcd' },
  'etcd-password': {
    kind: 'text',
    fallback: '',
    value: 'TEXT',
    about: 'its password; better in the environment or the file, where ps does not show it',
    secret: true,
  },
  iface: {
    kind: 'texts',
    fallback: '',
    value: 'NAME|IP',
    about: 'link towards the other nodes; may be repeated, the first that is there counts',
  },
  'iface-regex': {
    kind: 'texts',
    fallback: '',
    value: 'PATTERN',
    about: 'the same by a pattern for its address, else its name; after iface',
  },
  'iface-can-reach': {
    kind: 'text',
    fallback: '',
    value: 'IP',
    about: 'the same by the route to an address; after iface and iface-regex',
  },
  'subnet-file': {
    kind: 'text',
    fallback: '/run/flannel/subnet.env',
    value: 'FILE',
    about: "where the node's subnet is written for the CNI plugin flannel",
  },
  'public-ip': {
    kind: 'text',
    fallback: '',
    value: 'IP',
    about: 'address at which other nodes reach this one; without iface also the link that has it',
  },
  'public-ipv6': { kind: 'text', fallback: '', value: 'IP', about: 'the same for IPv6' },
  'subnet-lease-renew-margin': {
    kind: 'number',
    fallback: '60',
    value: 'MINUTES',
    about: 'how long before its end a lease is renewed, 1 to 1439',
  },
  'ip-masq': { kind: 'flag', fallback: 'false', about: 'masquerade what pods send out of the network' },
  'ip-masq-fully-random-disable': { kind: 'flag', fallback: 'false', about: 'masquerade without port randomisation' },
  'ip-blackhole-route': {
    kind: 'flag',
    fallback: 'false',
    about: 'a route that drops what is for this node and for no pod of it, after all closer ones',
  },
  'iptables-forward-rules': {
    kind: 'flag',
    fallback: 'true',
    about: 'let pods pass where forwarding is dropped by default',
  },
  'iptables-resync': { kind: 'number', fallback: '5', value: 'SECONDS', about: 'no effect', idle: ENGINE },
  'healthz-ip': {
    kind: 'text',
    fallback: '0.0.0.0',
    value: 'IP',
    about: 'address of the status server, when healthz-port is given',
  },
  'healthz-port': { kind: 'number', fallback: '0', value: 'PORT', about: 'port of the status server; 0 for none' },
  'net-config-path': {
    kind: 'text',
    fallback: '/etc/kube-flannel/net-conf.json',
    value: 'FILE',
    about: "the network's configuration, for the stores file and kube",
  },
  'kube-subnet-mgr': { kind: 'flag', fallback: 'false', about: 'leases in the Kubernetes API, as --store=kube' },
  'kube-api-url': {
    kind: 'text',
    fallback: '',
    value: 'URL',
    about: 'API server instead of the one in the kubeconfig; without a kubeconfig no credentials are sent',
  },
  'kube-annotation-prefix': {
    kind: 'text',
    fallback: 'flannel.alpha.coreos.com',
    value: 'TEXT',
    about: 'what the annotations of a Node begin with',
  },
  'kubeconfig-file': {
    kind: 'text',
    fallback: '',
    value: 'FILE',
    about: 'kubeconfig; without one the service account of the pod',
  },
  'set-node-network-unavailable': {
    kind: 'flag',
    fallback: 'true',
    about: 'write the condition NetworkUnavailable of the Node',
  },
  v: { kind: 'number', fallback: '0', value: 'LEVEL', about: 'no effect', idle: 'there is one level of log' },
  vmodule: { kind: 'text', fallback: '', value: 'TEXT', about: 'no effect', idle: 'there is one level of log' },
  log_backtrace_at: { kind: 'text', fallback: '', value: 'TEXT', about: 'no effect', idle: 'there are no such traces' },
  version: { kind: 'flag', fallback: 'false', about: 'print the version and end' },

  config: {
    kind: 'text',
    fallback: '',
    value: 'FILE',
    about: 'settings from a YAML file; flags and environment count before it',
  },
  'check-config': { kind: 'flag', fallback: 'false', about: 'read the settings, say what is wrong, and end' },
  'node-name': {
    kind: 'text',
    fallback: '',
    value: 'NAME',
    about: 'whose lease it is, whatever the addresses are (NODE_NAME, else the host name)',
  },
  store: {
    kind: 'text',
    fallback: '',
    value: 'file|etcd|kube',
    about: 'where leases are; kube with kube-subnet-mgr, etcd when anything of etcd is given, else file',
  },
  'file-store-dir': {
    kind: 'text',
    fallback: '/var/lib/plumb/store',
    value: 'DIR',
    about: 'folder of the file store, shared by all nodes; must exist',
  },
  'state-dir': {
    kind: 'text',
    fallback: '/var/lib/plumb',
    value: 'DIR',
    about: 'what the node remembers: its last lease, what it installed',
  },
  'tunnel-address': {
    kind: 'list',
    fallback: '',
    value: 'IP[,IP]',
    about: "where this node's tunnels begin, one per family; else an address of the link",
  },
  'advertise-address': {
    kind: 'list',
    fallback: '',
    value: 'IP[,IP]',
    about:
      'what other nodes are told, one per family, such as an address that a NAT translates; else public-ip, else the tunnel address',
  },
  'non-masquerade-cidrs': {
    kind: 'list',
    fallback: '',
    value: 'CIDR,…',
    about: 'where pods keep their addresses besides the network',
  },
  'replace-flannel': { kind: 'flag', fallback: 'false', about: "remove what flanneld's firewall left on the node" },
  'install-cni': {
    kind: 'flag',
    fallback: 'false',
    about: 'install the plugins, and when the node is ready the network for the container runtime',
  },
  pods: {
    kind: 'text',
    fallback: 'bridge',
    value: 'bridge|routed',
    about:
      'what the installed network makes of pods: ports of a bridge, or links of their own to which the node routes',
  },
  'cni-conf-dir': {
    kind: 'text',
    fallback: '/etc/cni/net.d',
    value: 'DIR',
    about: 'where the container runtime finds networks',
  },
  'cni-bin-dir': { kind: 'text', fallback: '/opt/cni/bin', value: 'DIR', about: 'where it finds plugins' },
  'status-address': {
    kind: 'text',
    fallback: '127.0.0.1:9469',
    value: 'IP:PORT',
    about: 'of the status server; off for none',
  },
  'status-token-file': {
    kind: 'text',
    fallback: '',
    value: 'FILE',
    about: 'with the token for everything but metrics at a status-address of other machines (Authorization: Bearer)',
  },
  'status-redact': {
    kind: 'flag',
    fallback: 'false',
    about: 'leaves names of pods, policies and Services, and addresses of pods, out of what the status server tells',
  },
  'metrics-per-peer': {
    kind: 'flag',
    fallback: 'false',
    about: 'metrics of every peer and BGP session, not only of the 100 worst',
  },
  'log-format': {
    kind: 'text',
    fallback: 'plain',
    value: 'plain|text|json',
    about: 'lines of the log: the fact alone, with time and level as in Kubernetes, or as JSON',
  },
  socket: {
    kind: 'text',
    fallback: '/run/plumb/agent.sock',
    value: 'FILE',
    about: 'where the agent answers plumb status and plumb leases',
  },
  'tx-checksum-offload': {
    kind: 'text',
    fallback: 'auto',
    value: 'auto|on|off',
    about: 'checksums of tunnelled packets by the network card; auto asks the card whether it can',
  },
  resync: {
    kind: 'number',
    fallback: '900',
    value: 'SECONDS',
    about: 'how often everything is looked over though nothing is known to have changed; 0 for never',
  },
  'probe-interval': {
    kind: 'number',
    fallback: '30',
    value: 'SECONDS',
    about: 'how often each peer is asked over the overlay whether it answers (ICMP echo); 0 for never',
  },
  'network-policy': {
    kind: 'text',
    fallback: '',
    value: 'kubernetes|DIR',
    about: 'enforce NetworkPolicy: of the Kubernetes API, or of the manifests in a folder',
  },
  'policy-socket': {
    kind: 'text',
    fallback: '/run/plumb/policy.sock',
    value: 'FILE',
    about: 'where the agent answers the plugin policy and plumb policy',
  },
  'service-proxy': {
    kind: 'text',
    fallback: '',
    value: 'kubernetes|DIR',
    about: 'serve Services instead of kube-proxy: of the Kubernetes API, or of the manifests in a folder',
  },
  'node-port-addresses': {
    kind: 'list',
    fallback: '',
    value: 'CIDR,…',
    about: 'addresses of the node that have NodePorts, or primary for those of the Node object; else all but loopback',
  },
  'service-cidr': {
    kind: 'list',
    fallback: '',
    value: 'CIDR,…',
    about: 'networks of ClusterIPs, where packets to an address of no Service are dropped; besides ServiceCIDR objects',
  },
  'conntrack-max-per-core': {
    kind: 'number',
    fallback: '32768',
    value: 'N',
    about: 'connections that the kernel follows, at least, per processor; 0 leaves its limit',
  },
  'conntrack-min': {
    kind: 'number',
    fallback: '131072',
    value: 'N',
    about: 'the same for the whole node, with conntrack-max-per-core',
  },
  'conntrack-tcp-timeout-established': {
    kind: 'text',
    fallback: '24h0m0s',
    value: 'TIME',
    about: 'how long the kernel keeps a TCP connection without packets; 0s leaves its time, also below',
  },
  'conntrack-tcp-timeout-close-wait': {
    kind: 'text',
    fallback: '1h0m0s',
    value: 'TIME',
    about: 'the same for one in the state CLOSE_WAIT',
  },
  'conntrack-udp-timeout': { kind: 'text', fallback: '0s', value: 'TIME', about: 'the same for UDP without answers' },
  'conntrack-udp-timeout-stream': {
    kind: 'text',
    fallback: '0s',
    value: 'TIME',
    about: 'the same for UDP with answers',
  },
  'conntrack-tcp-be-liberal': {
    kind: 'flag',
    fallback: 'false',
    about: 'TCP packets outside the window belong to their connection',
  },
  'cluster-cidr': {
    kind: 'list',
    fallback: '',
    value: 'CIDR,…',
    about: 'clients of ClusterIPs with other addresses get the address of the node',
  },
  'masquerade-all': { kind: 'flag', fallback: 'false', about: 'all clients of ClusterIPs get the address of the node' },
  'replace-kube-proxy': { kind: 'flag', fallback: 'false', about: 'remove what kube-proxy left on the node' },
  'service-health-address': {
    kind: 'text',
    fallback: '[::]:10256',
    value: 'IP:PORT',
    about: 'where load balancers ask whether this node serves Services, as they ask kube-proxy; off for none',
  },
  'service-proxy-force': {
    kind: 'flag',
    fallback: 'false',
    about: 'serve Services though the rules of kube-proxy are there',
  },
  'policy-log': {
    kind: 'text',
    fallback: 'off',
    value: 'on|off',
    about: 'log what NetworkPolicy refuses, with both pods and the reason, at most 10 packets a second',
  },
  'policy-audit': {
    kind: 'flag',
    fallback: 'false',
    about: 'NetworkPolicy refuses nothing, and logs what it would refuse',
  },
  'policy-keep-established': {
    kind: 'flag',
    fallback: 'false',
    about: 'open connections go on when NetworkPolicy no longer allows them',
  },
  'fast-path': {
    kind: 'text',
    fallback: 'auto',
    value: 'auto|off',
    about: 'packets of known connections pass from link to link past the rules, where the kernel can',
  },
  'bgp-config': {
    kind: 'text',
    fallback: '',
    value: 'FILE',
    about: 'BGP by a BIRD of the agent: a YAML file with the peers, and with what is announced',
  },
  'otlp-endpoint': {
    kind: 'text',
    fallback: '',
    value: 'URL',
    about: 'where spans of the agent and of traced plugin calls go, by OTLP/HTTP: http://127.0.0.1:4318',
  },
  'quiet-ms': {
    kind: 'number',
    fallback: '10',
    value: 'MS',
    about: 'how long changes are gathered before they are acted on',
  },
  'allow-extension': {
    kind: 'flag',
    fallback: 'false',
    about: "run commands of the network's configuration as root (backend extension)",
  },
  'tunnel-sources': {
    kind: 'list',
    fallback: 'leases',
    value: 'leases|any|CIDR,…',
    about: 'from where tunnelled packets are taken: the addresses of leases, these networks too, or anywhere',
  },
  'allow-overlap': { kind: 'flag', fallback: 'false', about: 'go on though the network overlaps a route of the node' },
} as const satisfies Readonly<Record<string, Flag>>

/** The name of a setting. */
export type FlagName = keyof typeof FLAGS
