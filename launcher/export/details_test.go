package export_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/launcher/export"
)

// Details of the files, and gaps that are reported only if the configuration has the setting.
func TestExport_ConvertsOrReportsEachSetting(t *testing.T) {
	const (
		kubernetes, nomad, systemd = "kubernetes", "nomad", "systemd"
		all                        = "all"
	)
	for _, c := range []struct {
		target, group string
		text          string // a part of an exported file or of a reported gap
		is            bool
	}{
		{all, "args: ['{dir}']", "are paths of the launcher, and are not replaced", true},
		{all, "args: ['{socket}']", "are paths of the launcher, and are not replaced", true},
		{all, "args: ['{id}']", "are paths of the launcher, and are not replaced", false},
		{kubernetes, "pre_stop: [{command: a, args: ['{socket}']}]", "are paths of the launcher, and are not replaced", true},
		{kubernetes, "pre_stop: [{command: a, args: ['{id}']}]", "pre_stop: {id} is not replaced", true},
		{kubernetes, "pre_stop: [{command: a, args: [id]}]", "pre_stop: {id} is not replaced", false},
		{systemd, "pre_stop: [{command: a, args: ['{id}']}]", "ExecStop=-a %p-%i\n", true},
		{all, "shutdown: {grace_period: 1s, grace: enforced}", "shutdown.grace_period: is not supported", true},
		{all, "shutdown: {grace_period: 10s, grace: enforced}", "shutdown.grace_period: is not supported", false},
		{all, "shutdown: {grace_period: 1s}", "shutdown.grace_period: is not supported", false},

		{kubernetes, "protocol: signals, listeners: [{name: a, address: ':8080'}]", "containerPort: 8080", true},
		{kubernetes, "protocol: signals, listeners: [{name: a, address: ':0'}]", "containerPort", false},
		{kubernetes, "protocol: signals, listeners: [{name: a, network: unix, address: /80}]", "containerPort", false},
		{kubernetes, "pre_stop: [{command: a}]", "only the first hook is exported", false},
		{kubernetes, "pre_stop: [{command: a}, {command: b}]", "only the first hook is exported", true},
		{kubernetes, "pre_stop: [{command: a}, {command: b}], shutdown: {deregister_delay: 1s}", "only the first hook is exported", false},
		{kubernetes, "pre_stop: [{command: a}], shutdown: {deregister_delay: 1s}", "is not exported: a pod has one hook", true},

		{nomad, "args: ['a<b']", `"a<b"`, true},
		{nomad, "env: {A: '{id}'}", `"A": "kv-${NOMAD_ALLOC_INDEX}"`, true},
		{nomad, "restart_policy: {crash_loop_limit: 0}", `"Mode": "delay"`, true},
		{nomad, "restart_policy: {crash_loop_limit: 1}", `"Mode": "fail"`, true},
		{nomad, "health_check_timeout: 20m, progress_deadline: 10m", "progress_deadline: is 20m1s", true},
		{nomad, "health_check_timeout: 20m, progress_deadline: 30m", "progress_deadline: is", false},
		{nomad, "protocol: signals", `"HealthCheck": "task_states"`, true},
		{nomad, "protocol: signals, listeners: [{name: a, address: ':80'}]", `"HealthCheck": "checks"`, true},
		{nomad, "desired_instances: 2", "promoted together", true},
		{nomad, "desired_instances: 0", "promoted together", false},
		{nomad, "working_dir: /srv", "working_dir: is ignored; the driver exec", true},
		{nomad, "working_dir: /srv, export: {image: a}", "working_dir: is ignored; the driver exec", false},
		{nomad, "shutdown: {max_duration: 27s}", "max_kill_timeout", false},
		{nomad, "shutdown: {max_duration: 28s}", "a max_kill_timeout of at least 31s", true},
		{nomad, "protocol: grpc, max_surge: 1", "so a client can run only one of them", true},
		{nomad, "protocol: grpc, max_surge: 0, min_healthy_instances: 0", "so a client can run only one of them", false},
		{nomad, "restart_policy: {initial_backoff: 1m}", "max_backoff", false},
		{nomad, "restart_policy: {initial_backoff: 1s}", "max_backoff: the pause before each restart is always 1s", true},

		{systemd, "listeners: [{name: a, address: ':80'}]", "ListenStream=80\n", true},
		{systemd, "listeners: [{name: a, address: '127.0.0.1:80'}]", "ListenStream=127.0.0.1:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp4, address: ':80'}]", "ListenStream=0.0.0.0:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp4, address: '127.0.0.1:80'}]", "ListenStream=127.0.0.1:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp6, address: ':80'}]", "ListenStream=[::]:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp6, address: 'localhost:80'}]", "ListenStream=[::1]:80\n", true},
		{systemd, "listeners: [{name: a, address: ':80'}]", "starts only the first one", false},
		{systemd, "desired_instances: 2, listeners: [{name: a, address: ':80'}]", "starts only the first one", true},
		{systemd, "args: ['', b]", "\nExecStart=kv \"\" b\n", true},
		{systemd, `args: ["'", a;b]`, "\nExecStart=kv \"'\" \"a;b\"\n", true},
		{systemd, `args: ["\x7f", 'a\b', 'a"b']`, "\nExecStart=kv \"\\x7f\" \"a\\\\b\" \"a\\\"b\"\n", true},
		{systemd, "protocol: grpc, liveness: {interval: 0s}", "liveness: there are no checks", false},
		{systemd, "protocol: grpc, liveness: {interval: 2s}", "liveness: there are no checks", true},
		{systemd, "protocol: signals", "liveness: there are no checks", false},
		{all, "protocol: auto", "protocol: ", true},
		{kubernetes, "readinessProbe: {tcpSocket: {port: 1}}", "protocol: ", false},
		{kubernetes, "readinessProbe: {tcpSocket: {port: 1}}, health_check_timeout: 20s", "startupProbe:\n          tcpSocket:\n            port: 1\n          periodSeconds: 1\n          timeoutSeconds: 1\n          failureThreshold: 20\n", true},
		{kubernetes, "startupProbe: {tcpSocket: {port: 1}}, protocol: grpc", "grpc:", false},
		{kubernetes, "livenessProbe: {tcpSocket: {port: 1, host: 192.0.2.1}}", "so the process must listen there", false},
		{kubernetes, "livenessProbe: {tcpSocket: {port: 1, host: localhost}}", "so the process must listen there", true},
		{kubernetes, "livenessProbe: {exec: {command: [a]}}", "so the process must listen there", false},
		{kubernetes, "livenessProbe: {exec: {command: [a, '{id}']}}", "are not replaced in a probe", true},
		{kubernetes, "livenessProbe: {exec: {command: [a, '{port}']}}, export: {port: 99}", "- '99'", true},
		{kubernetes, "livenessProbe: {exec: {command: [a, --password=hunter2]}}", "livenessProbe: has a secret", true},
		{kubernetes, "livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 1500ms}", "livenessProbe.periodSeconds: is 2s", true},
		{kubernetes, "livenessProbe: {tcpSocket: {port: 1}, periodSeconds: 2}", "livenessProbe.periodSeconds: is", false},
		{kubernetes, "watchdog: 1s", "watchdog: there is no watchdog", true},
		{nomad, "readinessProbe: {exec: {command: [a]}, successThreshold: 2}", "FailuresBeforeCritical", false},
		{nomad, "readinessProbe: {exec: {command: [a]}, successThreshold: 2}", "readinessProbe.failureThreshold: is 1", true},
		{nomad, "watchdog: 1s", "watchdog: there is no watchdog", true},
		{nomad, "env: {PORT: '{port}'}", `"PORT": "${NOMAD_PORT_service}"`, true},
		{nomad, "livenessProbe: {tcpSocket: {port: 1}}", `"HealthCheck": "checks"`, true},
		{nomad, "startupProbe: {tcpSocket: {port: 1}}", `"HealthCheck": "task_states"`, true},
		{nomad, "livenessProbe: {tcpSocket: {port: 1}}", "is one of a Consul service", false},
		{nomad, "livenessProbe: {grpc: {port: 1}}", "livenessProbe: the check is one of a Consul service", true},
		{systemd, "watchdog: 1500ms", "WatchdogSec=1500ms\nNotifyAccess=all\n", true},
		{systemd, "protocol: notify", "Type=notify\nNotifyAccess=all\n", true},
		{systemd, "protocol: grpc", "Type=notify\nNotifyAccess=main\n", true},
		{systemd, "protocol: auto", "Type=exec\n", true},
		{systemd, "readinessProbe: {tcpSocket: {port: 1}}", "readinessProbe: there are no probes", true},
		{systemd, "args: ['{port}']", "export.port: 8080 takes the place", true},
		{systemd, "args: ['{port}']", "ExecStart=kv 8080\n", true},
		{systemd, "restart_policy: {initial_backoff: 1m}", "max_backoff", false},
		{systemd, "restart_policy: {initial_backoff: 1s}", "max_backoff: the pause before each restart is always 1s", true},
	} {
		for _, target := range export.Targets() {
			if c.target != target && c.target != all {
				continue
			}
			t.Run(target+" "+c.group, func(t *testing.T) {
				var out strings.Builder
				r := to(t, target, parse(t, "process_groups: [{name: kv, command: kv, "+c.group+"}]"))
				for _, f := range r.Files {
					out.Write(f.Text)
				}
				for _, g := range r.Gaps {
					fmt.Fprintln(&out, g)
				}
				if strings.Contains(out.String(), c.text) != c.is {
					t.Errorf("%q is there is not %v:\n%s", c.text, c.is, out.String())
				}
			})
		}
	}
}
