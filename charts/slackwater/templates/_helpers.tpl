{{/* Labels of every object. */}}
{{- define "slackwater.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/name: slackwater
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of one component: (list . "webhook"). */}}
{{- define "slackwater.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: slackwater
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "slackwater.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "slackwater.sloNamespace" -}}
{{ .Values.sloConfig.namespace | default .Release.Namespace }}
{{- end }}

{{- define "slackwater.idleNamespace" -}}
{{ .Values.idlePolicy.namespace | default .Release.Namespace }}
{{- end }}

{{/* Pod metadata of one component: (list . "webhook"). */}}
{{- define "slackwater.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "slackwater.labels" $root | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: "9465"
  prometheus.io/path: /metrics
{{- end }}

{{/* Where the pods of one component run: (list . "webhook"). */}}
{{- define "slackwater.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with $values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Replicas of one component stand on different nodes where they can: (list . "webhook"). */}}
{{- define "slackwater.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "slackwater.selector" . | nindent 8 }}
{{- end }}

{{- define "slackwater.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "slackwater.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Image, probes and ports that every container of ours has. */}}
{{- define "slackwater.container" -}}
image: {{ include "slackwater.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "slackwater.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{/* A service account: (list . "webhook"). */}}
{{- define "slackwater.serviceAccount" -}}
{{- $root := index . 0 -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: slackwater-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "slackwater.labels" $root | nindent 4 }}
{{- end }}

{{/* Binds ClusterRole slackwater-NAME to service account slackwater-NAME: (list . "webhook"). */}}
{{- define "slackwater.clusterRoleBinding" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: slackwater-{{ index . 1 }}
  labels:
    {{- include "slackwater.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: slackwater-{{ index . 1 }}
subjects:
  - kind: ServiceAccount
    name: slackwater-{{ index . 1 }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* A PodDisruptionBudget that lets one pod go at a time: (list . "webhook"). */}}
{{- define "slackwater.disruptionBudget" -}}
{{- $root := index . 0 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: slackwater-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "slackwater.labels" $root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "slackwater.selector" . | nindent 6 }}
{{- end }}

{{/* The extender's entry of a KubeSchedulerConfiguration: (dict "root" . "url" "https://..." "ca" "caFile: ..."). */}}
{{- define "slackwater.extenderConfiguration" -}}
- urlPrefix: {{ .url }}
  filterVerb: filter
  httpTimeout: {{ .root.Values.scheduler.httpTimeout }}
  # Without an answer colocated pods wait; pods that ask for no blocks are never sent.
  ignorable: false
  # Names instead of whole Node objects: 25 kB instead of 6 MB for 500 nodes.
  nodeCacheCapable: true
  managedResources:
    - name: slackwater.io/colocation-memory
      # The scheduler counts blocks too: the extender only ever narrows its choice.
      ignoredByScheduler: false
  tlsConfig:
    serverName: slackwater-extender.{{ .root.Release.Namespace }}.svc
    {{ .ca }}
{{- end }}
