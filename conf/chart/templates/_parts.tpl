{{- define "plumb.podLabels" -}}
app.kubernetes.io/name: plumb
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "plumb.labels" -}}
{{ include "plumb.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "plumb.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "plumb.settings" -}}
agent.yaml: |
  store: kube
  {{- $own := dict "log-format" "text" "ip-masq" true "install-cni" true "cni-bin-dir" .Values.host.plugins "cni-conf-dir" .Values.host.networks }}
  {{- if eq (.Values.network.pods | default "bridge") "routed" }}
  {{- $_ := set $own "pods" "routed" }}
  {{- end }}
  {{- /* YAML reads the word off as false. */}}
  {{- if has (toString .Values.fastPath) (list "off" "false") }}
  {{- $_ := set $own "fast-path" "off" }}
  {{- end }}
  {{- if .Values.networkPolicy.enabled }}
  {{- $_ := set $own "network-policy" "kubernetes" }}
  {{- end }}
  {{- if .Values.serviceProxy }}
  {{- $_ := set $own "service-proxy" "kubernetes" }}
  {{- $_ := set $own "replace-kube-proxy" true }}
  {{- end }}
  {{- if .Values.bgp.enabled }}
  {{- $_ := set $own "bgp-config" (printf "/etc/plumb/configmaps/%s/bgp.yaml" (include "plumb.bgp" .)) }}
  {{- end }}
  {{- if .Values.metrics.enabled }}
  {{- $_ := set $own "healthz-ip" (ternary "0.0.0.0" "::" (ne .Values.network.ipv4 "")) }}
  {{- $_ := set $own "healthz-port" .Values.status.port }}
  {{- else }}
  {{- $_ := set $own "status-address" (printf "127.0.0.1:%d" (int .Values.status.port)) }}
  {{- end }}
  {{- $all := mergeOverwrite $own .Values.agent }}
  {{- /* The kubelet asks at status.port, and would end the agent again and again. */}}
  {{- $port := int .Values.status.port }}
  {{- $address := get $all "status-address" | toString }}
  {{- if ternary (not (hasSuffix (printf ":%d" $port) $address)) (ne (get $all "healthz-port" | int) $port) (hasKey $all "status-address") }}
  {{- fail (printf "agent.status-address or agent.healthz-port: the kubelet asks at port %d; want that port, or status.port" $port) }}
  {{- end }}
  {{- range $name, $value := $all }}
  {{ $name }}: {{ toJson $value }}
  {{- end }}
net-conf.json: |
  {
    {{- with .Values.network.ipv4 }}
    "Network": {{ toJson . }},
    {{- else }}
    "EnableIPv4": false,
    {{- end }}
    {{- with .Values.network.ipv6 }}
    "EnableIPv6": true,
    "IPv6Network": {{ toJson . }},
    {{- end }}
    "Backend": {{ toJson .Values.network.backend }}
  }
{{- end -}}

{{- /* What no upgrade may change by oversight, of the data of a ConfigMap, as JSON. "" is what nothing depends on. */ -}}
{{- define "plumb.kept" -}}
{{- $agent := get . "agent.yaml" | default "" | fromYaml -}}
{{- $network := get . "net-conf.json" | default "" | fromJson -}}
{{- $kept := dict "network.ipv4" $network.Network "network.ipv6" $network.IPv6Network "network.pods" ($agent.pods | default "bridge") -}}
{{- $_ := set $kept "network.backend" (ternary (toJson $network.Backend) "" (not (empty $network.Backend))) -}}
{{- $_ := set $kept "networkPolicy.enabled" (ternary "true" "" (eq (get $agent "network-policy" | toString) "kubernetes")) -}}
{{- $_ := set $kept "serviceProxy" (ternary "true" "" (eq (get $agent "service-proxy" | toString) "kubernetes")) -}}
{{- $_ := set $kept "bgp.enabled" (ternary "true" "" (hasKey $agent "bgp-config")) -}}
{{- $_ := set $kept "agent.yaml" $agent.Error -}}
{{- $_ := set $kept "net-conf.json" $network.Error -}}
{{- toJson $kept -}}
{{- end -}}

{{- /* `helm upgrade` forgets the values of the release unless it is told to keep them. Without a cluster (`helm template`) lookup finds nothing. */ -}}
{{- define "plumb.compare" -}}
{{- $running := lookup "v1" "ConfigMap" .Release.Namespace "plumb" -}}
{{- if $running -}}
{{- $before := include "plumb.kept" ($running.data | default dict) -}}
{{- $digest := printf "run-%s" ($before | sha256sum | trunc 8) -}}
{{- $after := include "plumb.kept" (include "plumb.settings" . | fromYaml) | fromJson -}}
{{- $changes := list -}}
{{- range $name, $value := fromJson $before -}}
{{- if and $value (ne ($value | toString) (get $after $name | toString)) -}}
{{- $changes = append $changes (printf "%s is %s and would be %s" $name $value (get $after $name | default "unset")) -}}
{{- end -}}
{{- end -}}
{{- if and $changes (ne (.Values.replaces | default "") $digest) -}}
{{- fail (printf "Refused, because the pods of the cluster would lose their network or their Services: %s. helm upgrade with a value forgets the earlier ones: pass --reset-then-reuse-values to keep them (--reuse-values before Helm 3.14). If you mean this change, pass --set replaces=%s" (join "; " $changes) $digest) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "plumb.bgp" -}}
{{ .Values.bgp.configMap | default "plumb-bgp" }}
{{- end -}}

{{- define "plumb.rights" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: {{ ternary "[get, list, watch]" "[get]" .Values.networkPolicy.enabled }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.networkPolicy.enabled }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch]
- apiGroups: [policy.networking.k8s.io]
  resources: [clusternetworkpolicies]
  verbs: [get, list, watch]
- apiGroups: [policy.networking.k8s.io]
  resources: [adminnetworkpolicies, baselineadminnetworkpolicies]
  verbs: [list, watch]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    - clusternetworkpolicies.policy.networking.k8s.io
    - adminnetworkpolicies.policy.networking.k8s.io
    - baselineadminnetworkpolicies.policy.networking.k8s.io
  verbs: [get]
{{- end }}
{{- if .Values.serviceProxy }}
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [networking.k8s.io]
  resources: [servicecidrs]
  verbs: [list, watch]
{{- end }}
{{- end -}}

{{- define "plumb.pod" -}}
# The agent wires the node itself. It has to run before any pod can have a network.
hostNetwork: true
priorityClassName: {{ .Values.priorityClassName }}
tolerations:
  {{- toYaml .Values.tolerations | nindent 2 }}
nodeSelector:
  {{- toYaml .Values.nodeSelector | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "plumb.mounts" -}}
- { name: config, mountPath: /etc/kube-flannel }
- { name: subnet, mountPath: /run/flannel }
- { name: socket, mountPath: /run/plumb }
- { name: attachments, mountPath: /run/cni }
- { name: state, mountPath: /var/lib/plumb }
- { name: pools, mountPath: /var/lib/cni }
- { name: networks, mountPath: {{ .Values.host.networks }} }
- { name: plugins, mountPath: {{ .Values.host.plugins }} }
{{- end -}}

{{- define "plumb.volumes" -}}
# Where the CNI plugin flannel, run by the kubelet's runtime, finds the node's subnet.
- { name: subnet, hostPath: { path: /run/flannel, type: DirectoryOrCreate } }
# Where plumb status and plumb leases ask.
- { name: socket, hostPath: { path: /run/plumb, type: DirectoryOrCreate } }
# What the plugins remember of each pod: the agent puts their rules back from it.
- { name: attachments, hostPath: { path: /run/cni, type: DirectoryOrCreate } }
- { name: state, hostPath: { path: /var/lib/plumb, type: DirectoryOrCreate } }
- { name: pools, hostPath: { path: /var/lib/cni, type: DirectoryOrCreate } }
- { name: networks, hostPath: { path: {{ .Values.host.networks }}, type: DirectoryOrCreate } }
- { name: plugins, hostPath: { path: {{ .Values.host.plugins }}, type: DirectoryOrCreate } }
{{- end -}}

{{- define "plumb.hook" -}}
helm.sh/hook: post-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
# Helm 3.17 and later print what the Job says when it fails.
helm.sh/hook-output-log-policy: hook-failed
{{- end -}}
