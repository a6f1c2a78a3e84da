import { AFTER, AFTER_BGP, BEFORE_REMOVAL, CONFIGURATION } from './contents.ts'
import type { Identity } from './order.ts'

/** The agent, the commands, and the plugins in them. `glibc` is the oldest one that the executable starts with. */
export function suite(glibc: string): Identity {
  return {
    name: 'plumb',
    summary: 'network for containers',
    about: [
      'CNI plugins in one executable, and an agent that connects the pods of',
      'the nodes of a Kubernetes cluster. It drives the kernel by iproute2 and',
      'nftables.',
    ],
    relations: {
      deb: [
        `Depends: libc6 (>= ${glibc}), iproute2, nftables`,
        'Recommends: conntrack',
        'Suggests: wireguard-tools, plumb-bgp',
      ],
      rpm: [
        `Requires: iproute, nftables, libc.so.6(GLIBC_${glibc})(64bit)`,
        'Recommends: conntrack-tools, iproute-tc',
        'Suggests: wireguard-tools, plumb-bgp',
      ],
    },
    folders: ['/etc/plumb', '/usr/share/doc/plumb'],
    settings: [CONFIGURATION],
    scripts: { after: AFTER, beforeRemoval: BEFORE_REMOVAL },
  }
}

/** What `--bgp-config` needs: BIRD, and no service of BIRD beside the agent. */
export function bgp(): Identity {
  return {
    name: 'plumb-bgp',
    summary: 'BGP for plumb',
    about: [
      'Brings BIRD, by which the agent of plumb announces pods and Services to',
      'routers. The agent runs it. The service of the package of BIRD is disabled',
      'while its configuration is the one that it came with.',
    ],
    relations: { deb: ['Depends: plumb, bird2'], rpm: ['Requires: plumb, bird >= 2'] },
    folders: ['/usr/share/doc/plumb-bgp'],
    settings: [],
    scripts: { after: AFTER_BGP, beforeRemoval: ':\n' },
  }
}

/**
 * The plugins alone. The kubelet of pkgs.k8s.io depends on `kubernetes-cni (>= 1.2.0)`, so this package stands for one.
 * `reference` is the release of the reference plugins whose keys these plugins have.
 */
export function pluginsAlone(reference: string): Identity {
  return {
    name: 'plumb-plugins',
    summary: 'CNI plugins of plumb',
    about: [
      'CNI plugins in one static executable, in /opt/cni/bin. They stand in for',
      'kubernetes-cni. They drive the kernel by iproute2 and nftables.',
    ],
    relations: {
      deb: [
        'Depends: iproute2, nftables',
        'Recommends: conntrack',
        `Provides: kubernetes-cni (= ${reference})`,
        'Conflicts: kubernetes-cni',
        'Replaces: kubernetes-cni',
      ],
      rpm: [
        'Requires: iproute, nftables',
        'Recommends: conntrack-tools, iproute-tc',
        `Provides: kubernetes-cni = ${reference}`,
        'Conflicts: kubernetes-cni',
        'Obsoletes: kubernetes-cni',
      ],
    },
    folders: ['/opt/cni', '/usr/share/doc/plumb-plugins'],
    settings: [],
  }
}
