import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { execa } from 'execa'

/** PEM files of a client. */
export interface Certificates {
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
}

/**
 * Makes a certificate authority in a folder, NAME.pem and NAME.key for each server, and those of a client. All are good
 * for so many days, the authority for two at least. With -1 they expired yesterday, and with `early` they begin to count next year.
 */
export async function certificates(
  dir: string,
  servers: readonly { readonly name: string; readonly ip: string }[],
  days: number | 'early' = 2,
): Promise<Certificates> {
  const ofAuthority = typeof days === 'number' ? Math.max(days, 2) : 2
  const make = 'openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
  const sh = (script: string) => execa('sh', ['-ec', script], { cwd: dir })
  await sh(`${make} -x509 -keyout ca.key -out ca.pem -days ${ofAuthority} -subj /CN=plumb-test-ca`)
  // Without a common name: etcd takes that for a user's, where passwords are asked for.
  for (const [name = '', names = ''] of [...servers.map((one) => [one.name, `IP:${one.ip}`]), ['client', 'DNS:client']])
    await sh(`${make} -keyout ${name}.key -subj / -out ${name}.csr
      printf 'subjectAltName=${names}\nextendedKeyUsage=serverAuth,clientAuth' >${name}.ext
      ${days === 'early' ? early(name) : `openssl x509 -req -in ${name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days ${days} -extfile ${name}.ext -out ${name}.pem`}`)
  return { caFile: join(dir, 'ca.pem'), certFile: join(dir, 'client.pem'), keyFile: join(dir, 'client.key') }
}

// `openssl x509` of Debian 12 knows no first day.
function early(name: string): string {
  const year = new Date().getFullYear() + 1
  return `printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\nunique_subject=no\npolicy=p\n[p]\ncommonName=optional\n' >ca.cnf
      touch index.txt
      openssl ca -batch -notext -create_serial -rand_serial -config ca.cnf -in ${name}.csr -cert ca.pem -keyfile ca.key -startdate ${year}0101000000Z -enddate ${year + 1}0101000000Z -extfile ${name}.ext -out ${name}.pem`
}

/** The option `tls` of fetch. */
export function forFetch({ caFile, certFile, keyFile }: Certificates): object | undefined {
  return caFile && certFile && keyFile
    ? { ca: readFileSync(caFile), cert: readFileSync(certFile), key: readFileSync(keyFile) }
    : undefined
}
