{{/* What every object of the chart is called: the operator knows its Lease and its Service by this name. */}}
{{- define "argosy.name" -}}
{{ .Values.name }}
{{- end }}

{{/* Objects without a namespace, of which each installation needs its own. */}}
{{- define "argosy.clusterName" -}}
{{ .Values.name }}-{{ .Release.Namespace }}
{{- end }}

{{- define "argosy.selector" -}}
app.kubernetes.io/name: argosy
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The other Deployment, which answers pods that wait and does nothing else. */}}
{{- define "argosy.observerSelector" -}}
app.kubernetes.io/name: argosy
app.kubernetes.io/component: observer
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

{{- define "argosy.subjects" -}}
- kind: ServiceAccount
  name: {{ include "argosy.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* What people should know about the values that they chose; argosy install tells it too. */}}
{{- define "argosy.warnings" -}}
{{- if and .Values.observer.enabled (eq .Values.observer.auth "none") -}}
WARNING: observer.auth=none: observers tell everybody in the cluster the phases and addresses of all AresJobs
{{- if .Values.observer.nodePort }}, and by port {{ .Values.observer.nodePort }} everybody who reaches a node from outside of it{{ end }}.
{{- end }}
{{- end }}
