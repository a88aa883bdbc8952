{{/* The pods of a Ray cluster. */}}

{{/* A group's pod template: (dict "root" $ "component" "head" "pod" values-of-the-group). */}}
{{- define "kafka-actors.pod" -}}
{{- $root := .root }}
{{- $pod := .pod }}
{{- $head := eq .component "head" }}
metadata:
  labels:
    {{- include "kafka-actors.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $pod.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $pod.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "kafka-actors.serviceAccountName" $root }}
  automountServiceAccountToken: {{ or $root.Values.serviceAccount.automountToken (and $head $root.Values.autoscaling.enabled) }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int $root.Values.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $name := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $pod $name }}
  {{ $name }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $name := list "priorityClassName" "runtimeClassName" }}
  {{- with index $pod $name }}
  {{ $name }}: {{ . }}
  {{- end }}
  {{- end }}
  {{- with $root.Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: ray-{{ .component }}
      image: {{ include "kafka-actors.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      securityContext:
        {{- toYaml $root.Values.containerSecurityContext | nindent 8 }}
      {{- if $head }}
      ports:
        - {name: gcs-server, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
        - {name: metrics, containerPort: 8080}
        {{- if $root.Values.status.enabled }}
        - {name: status, containerPort: {{ $root.Values.status.port }}}
        {{- end }}
      {{- else }}
      ports:
        - {name: metrics, containerPort: 8080}
      {{- end }}
      env:
        {{- include "kafka-actors.env" $root | nindent 8 }}
        {{- with $pod.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pod.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "kafka-actors.lifecycle" . | nindent 6 }}
      {{- if and $head $root.Values.status.enabled }}
      {{- include "kafka-actors.probes" $root | nindent 6 }}
      {{- end }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if $head }}
        - {name: config, mountPath: /etc/kafka-actors/config, readOnly: true}
        {{- end }}
        {{- if include "kafka-actors.codeName" $root }}
        - {name: code, mountPath: /etc/kafka-actors/code, readOnly: true}
        {{- end }}
        {{- if $root.Values.kafka.sasl.existingSecret }}
        - {name: sasl, mountPath: /etc/kafka-actors/sasl, readOnly: true}
        {{- end }}
        {{- if $root.Values.kafka.tls.existingSecret }}
        - {name: tls, mountPath: /etc/kafka-actors/tls, readOnly: true}
        {{- end }}
        {{- with $root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- /* KubeRay takes the first container for Ray's. */}}
    {{- with $root.Values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: {{ $root.Values.tmpSizeLimit }}
    {{- if $head }}
    - name: config
      configMap:
        name: {{ include "kafka-actors.fullname" $root }}-config
    {{- end }}
    {{- with include "kafka-actors.codeName" $root }}
    - name: code
      configMap:
        name: {{ . }}
    {{- end }}
    {{- with $root.Values.kafka.sasl.existingSecret }}
    - name: sasl
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- with $root.Values.kafka.tls.existingSecret }}
    - name: tls
      secret:
        secretName: {{ . }}
        defaultMode: 0440
    {{- end }}
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "kafka-actors.env" -}}
- {name: HOME, value: /tmp}
- {name: PYTHONDONTWRITEBYTECODE, value: "1"}
{{- if include "kafka-actors.codeName" . }}
- {name: PYTHONPATH, value: /etc/kafka-actors/code}
{{- end }}
- {name: RAY_JOB_STOP_WAIT_TIME_S, value: {{ include "kafka-actors.stopSeconds" . | quote }}}
{{- /* By then the job has drained; an actor that is at work would be waited for in vain. */}}
- {name: RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S, value: "0"}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The head stops the job and waits for it; when the whole cluster ends, its workers have to be there for so long. */}}
{{- define "kafka-actors.lifecycle" -}}
lifecycle:
  preStop:
    exec:
      {{- if eq .component "head" }}
      command: [python3, /etc/kafka-actors/config/stop_jobs.py, {{ sub (int .root.Values.terminationGracePeriodSeconds) 5 | quote }}]
      {{- else }}
      command:
        - bash
        - -c
        - >-
          for ((i = 0; i < {{ add (div (int .root.Values.job.drainTimeoutMs) 1000) 10 }}; i++));
          do (exec 3<> /dev/tcp/$FQ_RAY_IP/6379) 2> /dev/null || exit 0; sleep 1; done
      {{- end }}
{{- end }}

{{/* What KubeRay asks by itself, and the status page as soon as it is there: KubeRay submits a job only to a head that is
ready. */}}
{{- define "kafka-actors.probes" -}}
{{- $root := . }}
{{- range $probe, $path := dict "liveness" "healthz" "readiness" "readyz" }}
{{ $probe }}Probe:
  exec:
    command:
      - bash
      - -c
      - >-
        wget --tries 1 -T 3 -q -O- http://127.0.0.1:52365/api/local_raylet_healthz | grep -q success &&
        wget --tries 1 -T 3 -q -O- http://127.0.0.1:8265/api/gcs_healthz | grep -q success &&
        { ! (exec 3<> /dev/tcp/127.0.0.1/{{ $root.Values.status.port }}) 2> /dev/null ||
        wget --tries 1 -T 3 -q -O /dev/null http://127.0.0.1:{{ $root.Values.status.port }}/{{ $path }}; }
  {{- toYaml (index $root.Values.probes $probe) | nindent 2 }}
{{- end }}
{{- end }}
