{{/* The spec of the RayJob; its digest is part of the name. */}}

{{- define "kafka-actors.rayJobName" -}}
{{- $name := include "kafka-actors.fullname" . }}
{{- if .Values.job.replaceOnChange }}
{{- $contents := printf "%s%s%s" (include "kafka-actors.rayJobSpec" .) (include "kafka-actors.toml" .) .Values.job.file }}
{{- printf "%s-%s" $name (sha256sum $contents | trunc 8) }}
{{- else }}
{{- $name }}
{{- end }}
{{- end }}

{{- define "kafka-actors.rayJobSpec" -}}
entrypoint: {{ include "kafka-actors.entrypoint" . | quote }}
{{- with include "kafka-actors.runtimeEnv" . }}
runtimeEnvYAML: |
  {{- . | nindent 2 }}
{{- end }}
submissionMode: {{ .Values.job.submissionMode }}
backoffLimit: {{ int .Values.job.backoffLimit }}
{{- with .Values.job.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ int . }}
{{- end }}
{{- if .Values.job.suspend }}
suspend: true
{{- end }}
{{- if eq .Values.job.submissionMode "K8sJobMode" }}
submitterConfig:
  backoffLimit: {{ int .Values.submitter.backoffLimit }}
submitterPodTemplate:
  {{- include "kafka-actors.submitter" . | nindent 2 }}
{{- end }}
{{- if .Values.cluster.selector }}
clusterSelector:
  {{- toYaml .Values.cluster.selector | nindent 2 }}
{{- else }}
shutdownAfterJobFinishes: true
ttlSecondsAfterFinished: {{ int .Values.job.ttlSecondsAfterFinished }}
rayClusterSpec:
  {{- include "kafka-actors.rayClusterSpec" . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "kafka-actors.rayClusterSpec" -}}
rayVersion: {{ .Values.rayVersion | quote }}
{{- if .Values.authOptions.mode }}
authOptions:
  mode: {{ .Values.authOptions.mode }}
  {{- with .Values.authOptions.secretName }}
  secretName: {{ . }}
  {{- end }}
{{- end }}
enableInTreeAutoscaling: {{ .Values.autoscaling.enabled }}
{{- if .Values.autoscaling.enabled }}
autoscalerOptions:
  idleTimeoutSeconds: {{ int .Values.autoscaling.idleTimeoutSeconds }}
  upscalingMode: {{ .Values.autoscaling.upscalingMode }}
  {{- with .Values.autoscaling.version }}
  version: {{ . }}
  {{- end }}
  resources:
    {{- toYaml .Values.autoscaling.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  env:
    - {name: HOME, value: /tmp}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
{{- end }}
headGroupSpec:
  rayStartParams:
    {{- include "kafka-actors.rayStartParams" .Values.head.rayStartParams | nindent 4 }}
  template:
    {{- include "kafka-actors.pod" (dict "root" . "component" "head" "pod" .Values.head) | nindent 4 }}
workerGroupSpecs:
  {{- range $group := .Values.workerGroups }}
  - groupName: {{ $group.name }}
    replicas: {{ int $group.replicas }}
    {{- if $.Values.autoscaling.enabled }}
    minReplicas: {{ int (default 0 $group.minReplicas) }}
    maxReplicas: {{ int (default $group.replicas $group.maxReplicas) }}
    {{- with $group.idleTimeoutSeconds }}
    idleTimeoutSeconds: {{ int . }}
    {{- end }}
    {{- else }}
    minReplicas: {{ int $group.replicas }}
    maxReplicas: {{ int $group.replicas }}
    {{- end }}
    rayStartParams:
      {{- include "kafka-actors.rayStartParams" (default dict $group.rayStartParams) | nindent 6 }}
    template:
      {{- include "kafka-actors.pod" (dict "root" $ "component" "worker" "pod" $group) | nindent 6 }}
  {{- end }}
{{- end }}

{{/* Texts, all of them: KubeRay makes flags of them. */}}
{{- define "kafka-actors.rayStartParams" -}}
{{- if . }}
{{- range $name, $value := . }}
{{ $name }}: {{ ternary (toJson $value) (toString $value) (kindIs "float64" $value) | quote }}
{{- end }}
{{- else -}}
{}
{{- end }}
{{- end }}

{{- define "kafka-actors.submitter" -}}
metadata:
  labels:
    {{- include "kafka-actors.labels" . | nindent 4 }}
    app.kubernetes.io/component: submitter
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: ray-job-submitter
      image: {{ include "kafka-actors.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      securityContext:
        {{- toYaml .Values.containerSecurityContext | nindent 8 }}
      env:
        - {name: HOME, value: /tmp}
      resources:
        {{- toYaml .Values.submitter.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: 1Gi
{{- end }}
