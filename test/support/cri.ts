import { connect } from 'node:net'
import { create, createFileRegistry, type DescService } from '@bufbuild/protobuf'
import {
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FileDescriptorProtoSchema,
} from '@bufbuild/protobuf/wkt'
import { type CallOptions, createClient } from '@connectrpc/connect'
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node'
import type { Row } from './harness.ts'
import { patient } from './patience.ts'

/**
 * What a kubelet says to a runtime: the calls of the CRI (kubernetes/cri-api, runtime/v1) that have to do with pods and
 * their network. Each rejects with a ConnectError that holds the runtime's own words.
 */
export type Cri = Readonly<Record<Method, (request: Row) => Promise<Row>>> & { close(): void }
type Method = (typeof SERVICES)[keyof typeof SERVICES][number]

/** How long a call may take, in milliseconds: a runtime that hangs ends a test by its name, not by its file's limit. */
const LIMIT_MS = patient(50_000)
const SERVICES = {
  RuntimeService: [
    'version',
    'status',
    'updateRuntimeConfig',
    'runPodSandbox',
    'podSandboxStatus',
    'stopPodSandbox',
    'removePodSandbox',
    'listPodSandbox',
  ],
  ImageService: ['imageStatus'],
} as const
const PACKAGE = 'runtime.v1'
// The fields of api.proto that are used here, with their numbers. Enumerations are plain numbers, as on the wire. A map
// is a list of entries there.
const PROTO = `
VersionRequest { string version = 1 }
VersionResponse { string runtime_name = 2; string runtime_version = 3 }
StatusRequest { bool verbose = 1 }
StatusResponse { RuntimeStatus status = 1; repeated Entry info = 2 }
RuntimeStatus { repeated Condition conditions = 1 }
Condition { string type = 1; bool status = 2; string reason = 3; string message = 4 }
UpdateRuntimeConfigRequest { RuntimeConfig runtime_config = 1 }
UpdateRuntimeConfigResponse { }
RuntimeConfig { NetworkConfig network_config = 1 }
NetworkConfig { string pod_cidr = 1 }
RunPodSandboxRequest { PodSandboxConfig config = 1 }
RunPodSandboxResponse { string pod_sandbox_id = 1 }
PodSandboxConfig { Metadata metadata = 1; string hostname = 2; string log_directory = 3; DnsConfig dns_config = 4; repeated PortMapping port_mappings = 5; repeated Entry annotations = 7; LinuxConfig linux = 8 }
Metadata { string name = 1; string uid = 2; string namespace = 3; uint32 attempt = 4 }
DnsConfig { repeated string servers = 1; repeated string searches = 2 }
PortMapping { int32 protocol = 1; int32 container_port = 2; int32 host_port = 3; string host_ip = 4 }
LinuxConfig { string cgroup_parent = 1 }
PodSandboxStatusRequest { string pod_sandbox_id = 1; bool verbose = 2 }
PodSandboxStatusResponse { PodSandboxStatus status = 1; repeated Entry info = 2 }
PodSandboxStatus { string id = 1; Metadata metadata = 2; int32 state = 3; PodNetwork network = 5 }
PodNetwork { string ip = 1; repeated PodIp additional_ips = 2 }
PodIp { string ip = 1 }
StopPodSandboxRequest { string pod_sandbox_id = 1 }
StopPodSandboxResponse { }
RemovePodSandboxRequest { string pod_sandbox_id = 1 }
RemovePodSandboxResponse { }
ListPodSandboxRequest { }
ListPodSandboxResponse { repeated PodSandbox items = 1 }
PodSandbox { string id = 1; Metadata metadata = 2; int32 state = 3 }
ImageStatusRequest { ImageSpec image = 1 }
ImageStatusResponse { Image image = 1 }
ImageSpec { string image = 1 }
Image { string id = 1 }
Entry { string key = 1; string value = 2 }`
const API = services()

/** A client of the runtime that listens on this socket; nothing is sent before the first call. */
export function openCri(socket: string): Cri {
  const origin = 'http://localhost'
  const sessionManager = new Http2SessionManager(origin, {}, { createConnection: () => connect(socket) })
  const transport = createGrpcTransport({ baseUrl: origin, sessionManager, acceptCompression: [] })
  const calls = API.flatMap((service) => {
    const client = createClient(service, transport) as unknown as Record<
      string,
      (request: Row, options: CallOptions) => Promise<Row>
    >
    return service.methods.map(({ localName }) => [
      localName,
      (request: Row) => client[localName]?.(request, { timeoutMs: LIMIT_MS }),
    ])
  })
  return { ...(Object.fromEntries(calls) as Omit<Cri, 'close'>), close: () => sessionManager.abort() }
}

/** The value of a key of a map, which comes as a list of entries. */
export function found(map: readonly Row[], key: string): string {
  return map.find((one) => one['key'] === key)?.['value'] ?? ''
}

function services(): DescService[] {
  const messageType = [...PROTO.matchAll(/^(\w+) \{(.*)\}$/gm)].map(([, name = '', body = '']) => ({
    name,
    field: [...body.matchAll(/(repeated )?(\w+) (\w+) = (\d+)/g)].map(field),
  }))
  const service = Object.entries(SERVICES).map(([name, methods]) => ({ name, method: methods.map(method) }))
  const file = create(FileDescriptorProtoSchema, {
    name: 'api.proto',
    package: PACKAGE,
    syntax: 'proto3',
    messageType,
    service,
  })
  const registry = createFileRegistry(file, () => undefined)
  return Object.keys(SERVICES).map((name) => registry.getService(`${PACKAGE}.${name}`) as DescService)
}

function method(localName: string) {
  const name = localName.replace(/^\w/, (letter) => letter.toUpperCase())
  return { name, inputType: `.${PACKAGE}.${name}Request`, outputType: `.${PACKAGE}.${name}Response` }
}

function field([, repeated, type = '', name = '', number]: RegExpExecArray) {
  const scalar = FieldDescriptorProto_Type[type.toUpperCase() as keyof typeof FieldDescriptorProto_Type]
  return {
    name,
    jsonName: name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
    number: Number(number),
    label: repeated ? FieldDescriptorProto_Label.REPEATED : FieldDescriptorProto_Label.OPTIONAL,
    ...(scalar === undefined
      ? { type: FieldDescriptorProto_Type.MESSAGE, typeName: `.${PACKAGE}.${type}` }
      : { type: scalar }),
  }
}
