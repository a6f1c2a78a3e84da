import { executable } from './door.ts'
import { fs } from './fs.ts'

/**
 * The folder of the tools that `plumb install --tools` brings, beside the plugins. It has the tools below `bin`, the
 * libraries that they load below `lib`, and `ld.so`, the loader that starts them. Nodes without iproute2 or nftables
 * use them.
 */
export const OWN_TOOLS = '.plumb-tools'

/**
 * Finds a tool in that folder, and returns the words that start it: the loader, and what it loads. Undefined when the
 * tool is not there.
 */
export function ownTool(name: string): readonly string[] | undefined {
  const dir = `${executable().replace(/\/[^/]*$/, '')}/${OWN_TOOLS}`
  const file = `${dir}/bin/${name}`
  return fs.existsSync(file) ? [`${dir}/ld.so`, '--library-path', `${dir}/lib`, file] : undefined
}
