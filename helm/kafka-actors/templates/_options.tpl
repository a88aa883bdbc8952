{{/* The options of the job, from `kafka`, `job` and `job.options`; and where the job is. */}}

{{- define "kafka-actors.codeName" -}}
{{- if .Values.job.existingConfigMap }}{{ .Values.job.existingConfigMap }}
{{- else if .Values.job.file }}{{ include "kafka-actors.fullname" . }}-code
{{- end }}
{{- end }}

{{- define "kafka-actors.target" -}}
{{- if include "kafka-actors.codeName" . }}
{{- $target := default "job.py:job" .Values.job.target }}
{{- if hasPrefix "/" $target }}{{ $target }}{{ else }}/etc/kafka-actors/code/{{ $target }}{{ end }}
{{- else }}
{{- .Values.job.target }}
{{- end }}
{{- end }}

{{/* A dict as JSON. */}}
{{- define "kafka-actors.options" -}}
{{- $options := dict }}
{{- with include "kafka-actors.target" . }}{{ $_ := set $options "job" . }}{{ end }}
{{- with .Values.job.workers }}{{ $_ := set $options "workers" . }}{{ end }}
{{- with .Values.job.resourcesPerWorker }}{{ $_ := set $options "resources_per_worker" . }}{{ end }}
{{- with .Values.job.name }}{{ $_ := set $options "name" . }}{{ end }}
{{- with .Values.job.deadLetterTopic }}{{ $_ := set $options "dead_letter_topic" . }}{{ end }}
{{- with .Values.job.until }}{{ $_ := set $options "until" . }}{{ end }}
{{- if ne (get .Values.job.options "engine" | toString) "spark" }}
{{- $_ := set $options "drain_timeout_ms" .Values.job.drainTimeoutMs }}
{{- end }}
{{- with .Values.kafka.bootstrapServers }}{{ $_ := set $options "bootstrap_servers" . }}{{ end }}
{{- with .Values.kafka.groupId }}{{ $_ := set $options "group_id" . }}{{ end }}
{{- with .Values.kafka.topics }}{{ $_ := set $options "topics" . }}{{ end }}
{{- if ne .Values.kafka.securityProtocol "PLAINTEXT" }}
{{- $_ := set $options "security_protocol" .Values.kafka.securityProtocol }}
{{- end }}
{{- with .Values.kafka.sasl }}
{{- if .mechanism }}
{{- $_ := set $options "sasl_mechanism" .mechanism }}
{{- if .existingSecret }}
{{- $user := printf "${file:/etc/kafka-actors/sasl/%s}" .usernameKey }}
{{- $password := printf "${file:/etc/kafka-actors/sasl/%s}" .passwordKey }}
{{- if eq .mechanism "OAUTHBEARER" }}
{{- $_ := set $options "sasl_oauthbearer_client_credentials_client_id" $user }}
{{- $_ := set $options "sasl_oauthbearer_client_credentials_client_secret" $password }}
{{- else if ne .mechanism "GSSAPI" }}
{{- $_ := set $options "sasl_plain_username" $user }}
{{- $_ := set $options "sasl_plain_password" $password }}
{{- end }}
{{- end }}
{{- if eq .mechanism "OAUTHBEARER" }}
{{- with .tokenEndpointUrl }}{{ $_ := set $options "sasl_oauthbearer_token_endpoint_url" . }}{{ end }}
{{- with .scope }}{{ $_ := set $options "sasl_oauthbearer_scope" . }}{{ end }}
{{- with .tokenProvider }}{{ $_ := set $options "sasl_oauth_token_provider" . }}{{ end }}
{{- end }}
{{- with .identity }}{{ $_ := set $options "sasl_identity" . }}{{ end }}
{{- end }}
{{- end }}
{{- if hasSuffix "SSL" .Values.kafka.securityProtocol }}
{{- with .Values.kafka.tls }}
{{- if .existingSecret }}
{{- with .caKey }}{{ $_ := set $options "ssl_cafile" (printf "/etc/kafka-actors/tls/%s" .) }}{{ end }}
{{- if .certKey }}
{{- $_ := set $options "ssl_certfile" (printf "/etc/kafka-actors/tls/%s" .certKey) }}
{{- with .keyKey }}{{ $_ := set $options "ssl_keyfile" (printf "/etc/kafka-actors/tls/%s" .) }}{{ end }}
{{- with .passwordKey }}{{ $_ := set $options "ssl_password" (printf "${file:/etc/kafka-actors/tls/%s}" .) }}{{ end }}
{{- end }}
{{- end }}
{{- if not .checkHostname }}{{ $_ := set $options "ssl_check_hostname" false }}{{ end }}
{{- end }}
{{- end }}
{{- range $key, $value := .Values.job.options }}
{{- $name := replace "." "_" $key }}
{{- if hasKey $options $name }}
{{- fail (printf "job.options.%s: another value of the chart says this already" $key) }}
{{- end }}
{{- $_ := set $options $name $value }}
{{- end }}
{{- toJson $options }}
{{- end }}

{{/* What is JSON but for tables is TOML, too; numbers are whole where they look it. */}}
{{- define "kafka-actors.toml" -}}
{{- range $name, $value := fromJson (include "kafka-actors.options" .) }}
{{ $name }} = {{ include "kafka-actors.tomlValue" $value }}
{{- end }}
{{- end }}

{{- define "kafka-actors.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true }}{{ range $key, $value := . }}{{ if not $first }}, {{ end }}{{ $first = false }}{{ $key | toJson }} = {{ include "kafka-actors.tomlValue" $value }}{{ end -}} }
{{- else -}}
{{ toJson . }}
{{- end }}
{{- end }}

{{/* Options as variables, where no file can be mounted: {KAFKA_ACTORS_<OPTION>: text}, as JSON. */}}
{{- define "kafka-actors.variables" -}}
{{- $variables := dict }}
{{- range $name, $value := fromJson (include "kafka-actors.options" .) }}
{{- $text := toString $value }}
{{- if kindIs "slice" $value }}{{ $text = join "," $value }}{{ end }}
{{- if or (kindIs "map" $value) (kindIs "float64" $value) }}{{ $text = toJson $value }}{{ end }}
{{- $_ := set $variables (printf "KAFKA_ACTORS_%s" (upper $name)) $text }}
{{- end }}
{{- toJson $variables }}
{{- end }}

{{- define "kafka-actors.entrypoint" -}}
{{- if .Values.job.entrypoint }}
{{- .Values.job.entrypoint }}
{{- else -}}
kafka-actors run --log-format {{ .Values.job.logFormat }} --log-level {{ .Values.job.logLevel }}
{{- if not .Values.cluster.selector }} --config-file /etc/kafka-actors/config/job.toml{{ end }}
{{- if .Values.status.enabled }} --status 0.0.0.0:{{ .Values.status.port }}{{ end }}
{{- end }}
{{- end }}

{{/* What Ray gives a job to end in, before it kills it: its own three seconds would cut a drain short. */}}
{{- define "kafka-actors.stopSeconds" -}}
{{ sub (int .Values.terminationGracePeriodSeconds) 10 }}
{{- end }}

{{/* Ray's runtime environment, with the options where they have to travel with it. */}}
{{- define "kafka-actors.runtimeEnv" -}}
{{- $environment := deepCopy .Values.job.runtimeEnv }}
{{- if .Values.cluster.selector }}
{{- $variables := fromJson (include "kafka-actors.variables" .) }}
{{- $_ := set $variables "RAY_JOB_STOP_WAIT_TIME_S" (include "kafka-actors.stopSeconds" .) }}
{{- $_ := set $environment "env_vars" (merge (deepCopy (default dict $environment.env_vars)) $variables) }}
{{- end }}
{{- if $environment }}{{ toYaml $environment }}{{ end }}
{{- end }}
