{{/* Names and labels. */}}

{{- define "kafka-actors.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 38 | trimSuffix "-" }}
{{- end }}

{{/* KubeRay allows a RayJob 47 characters; the digest of its contents takes nine of them. */}}
{{- define "kafka-actors.fullname" -}}
{{- $name := include "kafka-actors.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 38 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 38 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 38 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "kafka-actors.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kafka-actors.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kafka-actors.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "kafka-actors.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The pods of the head that the job runs on: ours, or those of the cluster that was selected. */}}
{{- define "kafka-actors.headLabels" -}}
{{- if .Values.cluster.selector -}}
{{ toYaml .Values.cluster.selector }}
ray.io/node-type: head
{{- else -}}
{{ include "kafka-actors.selectorLabels" . }}
app.kubernetes.io/component: head
{{- end }}
{{- end }}

{{- define "kafka-actors.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "kafka-actors.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "kafka-actors.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}
