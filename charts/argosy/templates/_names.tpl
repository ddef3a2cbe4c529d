{{/* The name of the chart's objects, and of the operator's Lease. */}}
{{- define "argosy.name" -}}
{{ .Values.name }}
{{- end }}

{{/* The name of cluster-scoped objects, unique to this installation. */}}
{{- define "argosy.clusterName" -}}
{{ .Values.name }}-{{ .Release.Namespace }}
{{- end }}

{{- define "argosy.selector" -}}
app.kubernetes.io/name: argosy
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of the observers, which answer waiting pods in place of the operator. */}}
{{- define "argosy.observerSelector" -}}
app.kubernetes.io/name: argosy
app.kubernetes.io/component: observer
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of the node agents. */}}
{{- define "argosy.agentSelector" -}}
app.kubernetes.io/name: argosy
app.kubernetes.io/component: agent
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "argosy.labels" -}}
{{ include "argosy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "argosy.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* The CA of registries. Pods start without it, because the operator serves more than what needs registries. */}}
{{- define "argosy.registryCAVolume" -}}
- name: registry-ca
  {{- if eq .Values.registryCA.kind "Secret" }}
  secret: {secretName: {{ .Values.registryCA.name }}, optional: true, items: [{key: ca.crt, path: ca.crt}]}
  {{- else }}
  configMap: {name: {{ .Values.registryCA.name }}, optional: true, items: [{key: ca.crt, path: ca.crt}]}
  {{- end }}
{{- end }}

{{- define "argosy.registryCAMount" -}}
- {name: registry-ca, mountPath: /etc/argosy-registry-ca, readOnly: true}
{{- end }}

{{- define "argosy.subjects" -}}
- kind: ServiceAccount
  name: {{ include "argosy.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Warnings about the chosen values; argosy install prints them too. */}}
{{- define "argosy.warnings" -}}
{{- if and .Values.observer.enabled (eq .Values.observer.auth "none") -}}
WARNING: observer.auth=none: phases and addresses of all AresJobs can be read without a token by everyone in the cluster
{{- if .Values.observer.nodePort }}, and by everyone who can reach port {{ .Values.observer.nodePort }} of a node{{ end }}.
{{ end }}
{{- if .Values.apis.et }}
{{- if not .Values.features.remoteExec -}}
WARNING: features.remoteExec=false: all TrainingJobs wait before their launcher is created.
{{ end }}
{{- if and (not .Values.features.sshKeys) .Values.et.createSshSecret -}}
WARNING: features.sshKeys=false: TrainingJobs in ssh mode wait, unless they name a Secret with their keys.
{{ end }}
{{- end }}
{{- end }}
