package export_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/launcher/export"
)

// Small things that somebody relies on, and gaps that are told only where there is one.
func TestDetails(t *testing.T) {
	const (
		kubernetes, nomad, systemd = "kubernetes", "nomad", "systemd"
		all                        = "all"
	)
	for _, c := range []struct {
		target, group string
		text          string // in a file, or in a gap
		is            bool
	}{
		{all, "args: ['{dir}']", "are paths of the launcher's", true},
		{all, "args: ['{socket}']", "are paths of the launcher's", true},
		{all, "args: ['{id}']", "are paths of the launcher's", false},
		{kubernetes, "pre_stop: [{command: a, args: ['{socket}']}]", "are paths of the launcher's", true},
		{kubernetes, "pre_stop: [{command: a, args: ['{id}']}]", "pre_stop: {id} stands there as it is", true},
		{kubernetes, "pre_stop: [{command: a, args: [id]}]", "pre_stop: {id} stands there as it is", false},
		{systemd, "pre_stop: [{command: a, args: ['{id}']}]", "ExecStop=-a %p-%i\n", true},
		{all, "shutdown: {grace_period: 1s}", "there is no first limit", true},
		{all, "shutdown: {grace_period: 10s}", "there is no first limit", false},
		{all, "shutdown: {grace_period: 1s, grace: advisory}", "there is no first limit", false},

		{kubernetes, "protocol: signals, listeners: [{name: a, address: ':8080'}]", "containerPort: 8080", true},
		{kubernetes, "protocol: signals, listeners: [{name: a, address: ':0'}]", "containerPort", false},
		{kubernetes, "protocol: signals, listeners: [{name: a, network: unix, address: /80}]", "containerPort", false},
		{kubernetes, "pre_stop: [{command: a}]", "the others are left out", false},
		{kubernetes, "pre_stop: [{command: a}, {command: b}]", "the others are left out", true},
		{kubernetes, "pre_stop: [{command: a}, {command: b}], shutdown: {deregister_delay: 1s}", "the others are left out", false},
		{kubernetes, "pre_stop: [{command: a}], shutdown: {deregister_delay: 1s}", "is left out, since there is one hook", true},

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
		{nomad, "working_dir: /srv", "working_dir: the driver exec has one", true},
		{nomad, "working_dir: /srv, export: {image: a}", "working_dir: the driver exec has one", false},
		{nomad, "shutdown: {max_duration: 27s}", "max_kill_timeout", false},
		{nomad, "shutdown: {max_duration: 28s}", "max_kill_timeout of at least 31s", true},
		{nomad, "max_surge: 1", "so that no client can have two", true},
		{nomad, "max_surge: 0, min_healthy_instances: 0", "so that no client can have two", false},
		{nomad, "restart_policy: {initial_backoff: 1m}", "max_backoff", false},
		{nomad, "restart_policy: {initial_backoff: 1s}", "max_backoff: the pause is always 1s", true},

		{systemd, "listeners: [{name: a, address: ':80'}]", "ListenStream=80\n", true},
		{systemd, "listeners: [{name: a, address: '127.0.0.1:80'}]", "ListenStream=127.0.0.1:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp4, address: ':80'}]", "ListenStream=0.0.0.0:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp4, address: '127.0.0.1:80'}]", "ListenStream=127.0.0.1:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp6, address: ':80'}]", "ListenStream=[::]:80\n", true},
		{systemd, "listeners: [{name: a, network: tcp6, address: 'localhost:80'}]", "ListenStream=[::1]:80\n", true},
		{systemd, "listeners: [{name: a, address: ':80'}]", "starts the first one only", false},
		{systemd, "desired_instances: 2, listeners: [{name: a, address: ':80'}]", "starts the first one only", true},
		{systemd, "args: ['', b]", "\nExecStart=kv \"\" b\n", true},
		{systemd, `args: ["'", a;b]`, "\nExecStart=kv \"'\" \"a;b\"\n", true},
		{systemd, `args: ["\x7f", 'a\b', 'a"b']`, "\nExecStart=kv \"\\x7f\" \"a\\\\b\" \"a\\\"b\"\n", true},
		{systemd, "liveness: {interval: 0s}", "liveness: nobody asks", false},
		{systemd, "liveness: {interval: 2s}", "liveness: nobody asks", true},
		{systemd, "protocol: signals", "liveness: nobody asks", false},
		{systemd, "restart_policy: {initial_backoff: 1m}", "max_backoff", false},
		{systemd, "restart_policy: {initial_backoff: 1s}", "max_backoff: the pause is always 1s", true},
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
