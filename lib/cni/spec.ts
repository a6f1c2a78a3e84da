/** The spec versions that every plugin speaks, oldest first. */
export const supported: readonly string[] = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']

/** The newest of them. */
export const newest = '1.1.0'

/** The answer to VERSION (CNI spec 1.1.0 "VERSION"). Apart from the rest, so that nothing else has to be loaded for it: podman asks every plugin on every command. */
export function versionAnswer(): string {
  return `${JSON.stringify({ cniVersion: newest, supportedVersions: supported })}\n`
}
