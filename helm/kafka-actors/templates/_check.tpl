{{/* What a schema can't say: values that go together, and those that don't. */}}

{{- define "kafka-actors.check" -}}
{{- if not (regexMatch "^[a-z]" (include "kafka-actors.fullname" .)) }}
{{- fail "fullnameOverride: a RayJob's name begins with a letter" }}
{{- end }}
{{- $code := include "kafka-actors.codeName" . }}
{{- with .Values.job }}
{{- if and .file .existingConfigMap }}
{{- fail "job: give either file or existingConfigMap" }}
{{- end }}
{{- if and .existingConfigMap (not .target) (not .entrypoint) }}
{{- fail "job.target: has to name the job in existingConfigMap, such as orders.py:job" }}
{{- end }}
{{- if and .entrypoint .target }}
{{- fail "job: give either entrypoint or target" }}
{{- end }}
{{- if not (or .entrypoint .target $code) }}
{{- fail "job: name what to run: target, file, existingConfigMap or entrypoint" }}
{{- end }}
{{- if kindIs "string" .workers }}
{{- $bounds := splitList ".." .workers }}
{{- if gt (int (first $bounds)) (int (last $bounds)) }}
{{- fail (printf "job.workers: is %s: the first number is the least, the second the most" .workers) }}
{{- end }}
{{- end }}
{{- if and .suspend $.Values.cluster.selector }}
{{- fail "job.suspend: KubeRay can't suspend a job in a selected cluster" }}
{{- end }}
{{- include "kafka-actors.checkSecrets" (dict "path" "job.options" "values" .options) }}
{{- if ge (add (int .drainTimeoutMs) 20000) (mul (int $.Values.terminationGracePeriodSeconds) 1000) }}
{{- fail (printf "terminationGracePeriodSeconds: is %v: has to be more than job.drainTimeoutMs (%v) by 20 s" $.Values.terminationGracePeriodSeconds .drainTimeoutMs) }}
{{- end }}
{{- end }}
{{- if and (eq .Values.job.submissionMode "K8sJobMode") (contains "$" (include "kafka-actors.runtimeEnv" .)) }}
{{- fail "job.submissionMode: has to be HTTPMode, because the submitter's shell would take $… in the runtime environment for its own" }}
{{- end }}
{{- with .Values.kafka }}
{{- if and (hasPrefix "SASL" .securityProtocol) (not .sasl.mechanism) }}
{{- fail (printf "kafka.sasl.mechanism: is needed for securityProtocol %s" .securityProtocol) }}
{{- end }}
{{- if and .sasl.mechanism (not (hasPrefix "SASL" .securityProtocol)) }}
{{- fail (printf "kafka.sasl.mechanism: is given, but securityProtocol is %s" .securityProtocol) }}
{{- end }}
{{- with .sasl }}
{{- if and .existingSecret (eq .mechanism "AWS_MSK_IAM") }}
{{- fail "kafka.sasl.existingSecret: is given, but AWS_MSK_IAM has no user and password: the pod's identity signs in" }}
{{- end }}
{{- if .tokenProvider }}
{{- if ne .mechanism "OAUTHBEARER" }}
{{- fail (printf "kafka.sasl.tokenProvider: is for OAUTHBEARER, but kafka.sasl.mechanism is %s" (default "empty" .mechanism)) }}
{{- end }}
{{- if or .existingSecret .tokenEndpointUrl .scope }}
{{- fail "kafka.sasl.tokenProvider: gets the token itself: give neither existingSecret, tokenEndpointUrl nor scope" }}
{{- end }}
{{- end }}
{{- if and .identity (not .tokenProvider) (ne .mechanism "AWS_MSK_IAM") }}
{{- fail "kafka.sasl.identity: has the arguments of kafka.sasl.tokenProvider or of AWS_MSK_IAM, and there is neither" }}
{{- end }}
{{- include "kafka-actors.checkSecrets" (dict "path" "kafka.sasl.identity" "values" .identity) }}
{{- end }}
{{- if and .tls.existingSecret (not (hasSuffix "SSL" .securityProtocol)) }}
{{- fail (printf "kafka.tls.existingSecret: is given, but securityProtocol is %s" .securityProtocol) }}
{{- end }}
{{- end }}
{{- if and .Values.authOptions.secretName (ne .Values.authOptions.mode "token") }}
{{- fail "authOptions.secretName: is given, but authOptions.mode isn't token" }}
{{- end }}
{{- with .Values.networkPolicy }}
{{- if and .enabled .egress.enabled $.Values.kafka.sasl.tokenEndpointUrl (not .egress.extra) }}
{{- fail "networkPolicy.egress.extra: is empty, but OAUTHBEARER asks kafka.sasl.tokenEndpointUrl for tokens: add a rule for it" }}
{{- end }}
{{- if and .enabled .egress.enabled (or (eq $.Values.kafka.sasl.mechanism "AWS_MSK_IAM") $.Values.kafka.sasl.tokenProvider) (not .egress.extra) }}
{{- fail "networkPolicy.egress.extra: is empty, but the pod's identity asks its cloud for credentials: add a rule for it" }}
{{- end }}
{{- end }}
{{- if .Values.cluster.selector }}
{{- if .Values.authOptions.mode }}
{{- fail "authOptions.mode: is the selected cluster's own affair" }}
{{- end }}
{{- if not (index .Values.cluster.selector "ray.io/cluster") }}
{{- fail "cluster.selector: KubeRay finds a cluster by the label ray.io/cluster alone" }}
{{- end }}
{{- if $code }}
{{- fail "job: a selected cluster has pods of its own: its image has to have the job; give job.target, and neither file nor existingConfigMap" }}
{{- end }}
{{- if or .Values.kafka.sasl.existingSecret .Values.kafka.tls.existingSecret }}
{{- fail "kafka: a selected cluster has pods of its own: mount Secrets there, and name them in job.options, such as sasl_plain_password: ${file:/path}" }}
{{- end }}
{{- range $name := list "podDisruptionBudget" "networkPolicy" "autoscaling" }}
{{- if (index $.Values $name).enabled }}
{{- fail (printf "%s.enabled: is the selected cluster's own affair" $name) }}
{{- end }}
{{- end }}
{{- else }}
{{- if not .Values.workerGroups }}
{{- fail "workerGroups: is empty: the job's workers need pods" }}
{{- end }}
{{- end }}
{{- range $group := .Values.workerGroups }}
{{- if $.Values.autoscaling.enabled }}
{{- if gt (int (default 0 $group.minReplicas)) (int (default 1 $group.maxReplicas)) }}
{{- fail (printf "workerGroups %s: minReplicas is more than maxReplicas" $group.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled }}
{{- fail "metrics: give either podMonitor or serviceMonitor: the head's metrics would be there twice" }}
{{- end }}
{{- end }}

{{/* Refuses a secret that is written out, in tables within tables, too: a ConfigMap would have it. Among the arguments of an identity
the names are its provider's, so more of them count as secret; kafka_actors/config/security.py refuses the same. */}}
{{- define "kafka-actors.checkSecrets" -}}
{{- $path := .path }}
{{- $secret := "password|passphrase|secret$|jaas" }}
{{- if regexMatch "sasl[._]identity" $path }}{{ $secret = "secret|passw|passphrase|private_?key|token$|credential" }}{{ end }}
{{- range $name, $value := .values }}
{{- $at := printf "%s.%s" $path $name }}
{{- if kindIs "map" $value }}
{{- include "kafka-actors.checkSecrets" (dict "path" $at "values" $value) }}
{{- else if and (regexMatch $secret ($name | lower)) (not (regexMatch "\\$\\{(env|file|directory):" (toString $value))) }}
{{- fail (printf "%s: is secret: give kafka.sasl.existingSecret or kafka.tls.existingSecret, or a reference such as ${env:NAME}" $at) }}
{{- end }}
{{- end }}
{{- end }}
