/** The spec versions that every plugin speaks, oldest first. */
export const supported: readonly string[] = ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0']

/** The newest spec version. */
export const newest = '1.1.0'

/**
 * The answer to VERSION (CNI spec 1.1.0 "VERSION"). It is in a file of its own, so that VERSION loads no other code.
 * podman asks every plugin on every command.
 */
export function versionAnswer(): string {
  return `${JSON.stringify({ cniVersion: newest, supportedVersions: supported })}\n`
}
