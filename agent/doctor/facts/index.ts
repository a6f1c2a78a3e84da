// Made by `npm run tables` from the files in this folder: do not edit.
import { agent, network, status } from './agent.ts'
import { certificates } from './certificates.ts'
import { configurations } from './configurations.ts'
import { counters } from './counters.ts'
import { disks } from './disks.ts'
import type { Fact } from './facts.ts'
import { now, sysctl, uncountedNeighbours } from './kernel.ts'
import { legacyRules } from './legacy-rules.ts'
import { links } from './links.ts'
import { listeners } from './listeners.ts'
import { nft } from './nft.ts'
import { pods } from './pods.ts'
import { pools } from './pools.ts'
import { processes } from './processes.ts'
import { reach } from './reach.ts'
import { resolver } from './resolver.ts'
import { routes, rules } from './routes.ts'
import { ruleset } from './ruleset.ts'
import { lists, runtimes } from './runtimes.ts'
import { nameless, services, unheard } from './services.ts'
import { subnetFile } from './subnet-file.ts'
import { twins } from './twins.ts'

/** All facts of the doctor by their names, and how each is got. */
export const FACTS = {
  agent,
  certificates,
  configurations,
  counters,
  disks,
  legacyRules,
  links,
  listeners,
  lists,
  nameless,
  network,
  nft,
  now,
  pods,
  pools,
  processes,
  reach,
  resolver,
  routes,
  rules,
  ruleset,
  runtimes,
  services,
  status,
  subnetFile,
  sysctl,
  twins,
  uncountedNeighbours,
  unheard,
}

/**
 * The facts of a node. A fact that could not be read throws NotRead when a check asks for it. That check then counts as
 * not made.
 */
export type Facts = { readonly [Name in keyof typeof FACTS]: (typeof FACTS)[Name] extends Fact<infer T> ? T : never }
