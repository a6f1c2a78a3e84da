/** A word of a shell's command line, in single quotes where it needs them (POSIX shell, 2.2.2). */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/** The commands that give the agent a setting, also when it has another value there, and start it again. */
export function agentSetting(name: string, value: string): string[] {
  const file = '/etc/plumb/agent.yaml'
  return [
    `sed -i '/^${name}:/d' ${file}; echo ${shellWord(`${name}: ${value}`)} >>${file}`,
    'systemctl restart plumb-agent',
  ]
}
