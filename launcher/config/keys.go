package config

import (
	"reflect"
	"strings"

	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// keys maps the fields of launcher.GroupConfig to keys of the file. Env is missing, because its
// elements are checked by their names.
var keys = map[string]string{
	"Name":                     "name",
	"Job":                      "kind",
	"Command":                  "command",
	"WorkDir":                  "working_dir",
	"User":                     "user",
	"UserGroup":                "group",
	"Rlimits":                  "rlimits",
	"Limits":                   "limits",
	"Limits.Memory":            "limits.memory",
	"Limits.CPUs":              "limits.cpus",
	"Limits.IfUnavailable":     "limits.if_unavailable",
	"Protocol":                 "protocol",
	"Transport.Network":        "lifecycle.transport",
	"Transport.Address":        "lifecycle.address",
	"Transport.TLS":            "lifecycle.tls",
	"Transport.TLS.Cert":       "lifecycle.tls.cert_file",
	"Transport.TLS.Key":        "lifecycle.tls.key_file",
	"Transport.TLS.CA":         "lifecycle.tls.ca_file",
	"Desired":                  "desired_instances",
	"MinHealthy":               "min_healthy_instances",
	"MaxSurge":                 "max_surge",
	"HealthCheckTimeout":       "health_check_timeout",
	"MinReady":                 "min_ready_seconds",
	"LivenessInterval":         "liveness.interval",
	"LivenessTimeout":          "liveness.timeout",
	"LivenessFailures":         "liveness.failure_threshold",
	"Watchdog":                 "watchdog",
	"Shutdown.Grace":           "shutdown.grace_period",
	"Shutdown.Max":             "shutdown.max_duration",
	"Shutdown.Poll":            "shutdown.poll_interval",
	"Shutdown.SIGTERMTimeout":  "shutdown.sigterm_timeout",
	"Shutdown.DeregisterDelay": "shutdown.deregister_delay",
	"Shutdown.StopSignals":     "stop_signals",
	"Shutdown.SuccessCodes":    "success_exit_codes",
	"Restart.Policy":           "restart_policy.policy",
	"Restart.MinBackoff":       "restart_policy.initial_backoff",
	"Restart.MaxBackoff":       "restart_policy.max_backoff",
	"Restart.ResetAfter":       "restart_policy.reset_after",
	"Restart.CrashLimit":       "restart_policy.crash_loop_limit",
	"Roll.Canary":              "canary.instances",
	"Roll.CanaryWait":          "canary.wait",
	"Roll.Check.Command":       "canary.check.command",
	"Roll.Check.Prometheus":    "canary.check.prometheus",
	"Roll.Check.Query":         "canary.check.query",
	"Roll.Check.Interval":      "canary.check.interval",
	"Roll.Check.Timeout":       "canary.check.timeout",
	"Roll.ProgressDeadline":    "progress_deadline",
	"Roll.OnFailure":           "on_failure",
	"Roll.Retry":               "retry.policy",
	"Roll.Retries":             "retry.limit",
	"Roll.MinBackoff":          "retry.initial_backoff",
	"Roll.MaxBackoff":          "retry.max_backoff",
	"PreStop":                  "pre_stop",
	"PreStop.Command":          "pre_stop.command",
	"PreStop.Timeout":          "pre_stop.timeout",
	"OnLauncherDeath":          "on_launcher_death",
	"DependsOn":                "depends_on",
	"Listen":                   "listeners",
	"Listen.Name":              "listeners.name",
	"Listen.Network":           "listeners.network",
	"Listen.Address":           "listeners.address",
	"Log.Dir":                  "logs.dir",
	"Log.MaxSize":              "logs.max_size",
	"Log.MaxFiles":             "logs.max_files",
	"Log.MaxLine":              "logs.max_line",
	"Log.Buffer":               "logs.buffer",
}

// The fields of a probe have the keys in the yaml tags.
func init() {
	for field, key := range map[string]string{"StartupProbe": "startupProbe", "ReadinessProbe": "readinessProbe", "LivenessProbe": "livenessProbe"} {
		addKeys(field, key, reflect.TypeFor[Probe]())
	}
}

// addKeys adds the keys of a field that is a struct, and of what it contains.
func addKeys(field, key string, t reflect.Type) {
	keys[field] = key
	for k := range t.NumField() {
		f := t.Field(k)
		name, tag := field+"."+f.Name, key+"."+f.Tag.Get("yaml")
		if keys[name] = tag; f.Type.Kind() == reflect.Struct {
			addKeys(name, tag, f.Type)
		}
	}
}

// topKeys maps the fields of launcher.Config, and settings of the launcher command, to keys of the
// file.
var topKeys = map[string]string{
	"Dir":             "state_dir",
	"Groups":          "process_groups",
	"TotalDeadline":   "total_deadline",
	"Secrets.Files":   "secret.files",
	"Admin.Address":   "admin.address",
	"Admin.TLS":       "admin.tls",
	"Admin.TLS.Cert":  "admin.tls.cert_file",
	"Admin.TLS.Key":   "admin.tls.key_file",
	"Admin.TLS.CA":    "admin.tls.ca_file",
	"Metrics.Address": "metrics.address",
}

// keyOf returns the key that belongs to a field. The parameter at is the key of the group, or
// empty. A field can have an index, as in Listen[0].Address. Its key then has the same index after
// listeners.
func keyOf(at string, f spec.Field) (key string, ok bool) {
	field := string(f)
	number := ""
	if before, after, found := strings.Cut(field, "["); found {
		digits, rest, _ := strings.Cut(after, "]")
		field, number = before+rest, "["+digits+"]"
	}
	if key, ok = topKeys[field]; ok {
		return key, true
	}
	key, ok = keys[field]
	list, rest, nested := strings.Cut(key, ".")
	if number != "" {
		key = list + number
		if nested {
			key += "." + rest
		}
	}
	return join(at, key), ok
}

// lastName returns what a rule calls another field: the last part of its key.
func lastName(f spec.Field) string {
	key, _ := keyOf("", f)
	return key[strings.LastIndexByte(key, '.')+1:]
}
