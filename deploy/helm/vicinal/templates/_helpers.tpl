{{- define "vicinal.name" -}}
{{- $name := ternary .Release.Name (printf "%s-vicinal" .Release.Name) (contains "vicinal" .Release.Name) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "vicinal.selector" -}}
app.kubernetes.io/name: vicinal
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "vicinal.labels" -}}
{{ include "vicinal.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "vicinal.hardened" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "vicinal.claim" -}}
accessModes: [ReadWriteOnce]
resources: {requests: {storage: {{ .size }}}}
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Environment of every container of ours. A list or table of a setting is JSON. */}}
{{- define "vicinal.environment" -}}
{{- $settings := dict
  "home" .Values.home.address
  "shutdown_seconds" .Values.shutdownSeconds
  "run_jobs" false -}}
{{- range $name, $value := merge $settings .Values.settings }}
- name: VICINAL_{{ upper $name }}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- end }}

{{/* The pods of a part, replica or worker: (root, part, own: its values). */}}
{{- define "vicinal.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "vicinal.labels" . | nindent 4 }}
  {{- with .own.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "vicinal.name" .root }}
  automountServiceAccountToken: false
  # Variables of a Service named vicinal would be taken for settings: VICINAL_PORT=tcp://...
  enableServiceLinks: false
  # Something must take the place of init for processes whose parent has ended.
  shareProcessNamespace: true
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  # More than {{ $values.shutdownSeconds }} s for requests under way, see service/http/serving.
  terminationGracePeriodSeconds: {{ add $values.shutdownSeconds 25 }}
  topologySpreadConstraints:
    {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "vicinal.selector" $ | nindent 10 }}
    {{- end }}
  {{- with .own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .part }}
      image: {{ printf "%s:%s" $values.image.repository ($values.image.tag | default .root.Chart.AppVersion) }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- if eq .part "worker" }}
      args: [worker]
      {{- end }}
      envFrom:
        - secretRef: {name: {{ $values.secret }}}
      env:
        {{- include "vicinal.environment" .root | trim | nindent 8 }}
      {{- if eq .part "replica" }}
      ports:
        - {name: http, containerPort: 8321}
      # Searches are sent here until every node has heard that the pod ends.
      lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
      # Any: a gallery that no replica can search must not take all of them away from the others.
      startupProbe:
        httpGet: {path: "/readyz?galleries=any", port: http}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ mul $values.replicas.startMinutes 12 }}
      readinessProbe:
        httpGet: {path: "/readyz?galleries=any", port: http}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      # Not /readyz: a damaged gallery is no reason to start anew.
      livenessProbe:
        httpGet: {path: /livez, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      {{- end }}
      resources:
        {{- toYaml .own.resources | nindent 8 }}
      securityContext:
        {{- include "vicinal.hardened" . | nindent 8 }}
      volumeMounts:
        - {name: mirror, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        {{- if hasPrefix "/" $values.home.address }}
        - {name: home, mountPath: {{ $values.home.address }}}
        {{- end }}
        {{- with $values.mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {medium: Memory, sizeLimit: 512Mi}
    {{- if eq $values.mirror.kind "node" }}
    - name: mirror
      emptyDir: {sizeLimit: {{ $values.mirror.size }}}
    {{- else if eq $values.mirror.kind "claim" }}
    - name: mirror
      ephemeral:
        volumeClaimTemplate:
          spec:
            {{- include "vicinal.claim" $values.mirror | nindent 12 }}
    {{- end }}
    {{- if hasPrefix "/" $values.home.address }}
    - name: home
      persistentVolumeClaim: {claimName: {{ $values.home.claim }}}
    {{- end }}
    {{- with $values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
