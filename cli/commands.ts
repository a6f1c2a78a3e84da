// Made by `npm run tables` from the files in this folder: do not edit.
import type { Command } from './options.ts'

/** The commands by their names. */
export const commands: Readonly<Record<string, Command>> = {
  cni: {
    about: 'attach a network namespace to a network and detach it, as a container runtime does',
    load: () => import('./cni.ts'),
  },
  agent: {
    about: "give this node its part of the network, and make other nodes' pods reachable",
    load: () => import('./agent.ts'),
  },
  status: {
    about: 'tell whether this node’s agent has connected its pods, and why not',
    load: () => import('./status.ts'),
  },
  top: {
    about: 'watch this node, or all nodes of a cluster, in a terminal',
    load: () => import('./top.ts'),
  },
  page: {
    about: 'show all nodes of a cluster on a page in a browser',
    load: () => import('./page.ts'),
  },
  doctor: {
    about: 'say what is wrong with this node’s network, and which command mends it',
    load: () => import('./doctor.ts'),
  },
  sysdump: {
    about: 'pack all that tells the state of this node into one file, without secrets',
    load: () => import('./sysdump.ts'),
  },
  trace: {
    about: 'follow one packet through this node, and say where and why it is lost',
    load: () => import('./trace.ts'),
  },
  connectivity: {
    about: 'test whether pods and nodes reach each other, with test pods and real packets',
    load: () => import('./connectivity.ts'),
  },
  leases: {
    about: 'show which node has which subnet, and which cannot be reached',
    load: () => import('./leases.ts'),
  },
  services: {
    about: 'show the Services of this node and their endpoints, and why one is left out',
    load: () => import('./services.ts'),
  },
  bgp: {
    about: 'show the BGP sessions of this node, and why one is not there',
    load: () => import('./bgp.ts'),
  },
  policy: {
    about: 'show which policies select the pods of this node, and test whether a connection passes',
    load: () => import('./policy.ts'),
  },
  wireguard: {
    about: 'give this node another WireGuard key',
    load: () => import('./wireguard.ts'),
  },
  dhcp: {
    about: 'get leases of DHCP servers for the plugin dhcp, and keep them',
    load: () => import('./dhcp.ts'),
  },
  install: {
    about: 'put the plugins where container runtimes look for them',
    load: () => import('./install.ts'),
  },
  uninstall: {
    about: 'remove what was installed, and put back what was there before',
    load: () => import('./uninstall.ts'),
  },
  demo: {
    about: 'make pods and nodes of its own, try them out and remove them',
    load: () => import('./demo.ts'),
  },
}
