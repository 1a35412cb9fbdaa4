package config_test

import (
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/config"
)

// Each rule is reported once: a value that is wrong by itself is not compared with others.
func TestParse_ReportsEachBrokenRuleOnce(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, c := range []struct{ group, top, want string }{
		{"", "state_dir: srv", `f:3:1: state_dir: must be an absolute path, not "srv"`},
		{"", "state_dir: /srv/../etc", `f:3:1: state_dir: must be a clean path: "/etc", not "/srv/../etc"`},
		{"", "state_dir: /srv/" + long + "/" + long, "f:2:3: process_groups[0].name: makes the path of a socket in state_dir 142 bytes long, and the limit is 103; shorten the name or that directory"},
		{"", "admin: {address: '8080', tls: {cert_file: /a, key_file: /b, ca_file: /c}}", `f:3:9: admin.address: must be host:port with a port of 0 to 65535, not "8080"`},
		{"", "admin: {address: ':1', tls: {key_file: /b, ca_file: /c}}", "f:3:24: admin.tls.cert_file: is missing"},
		{"", "admin: {address: ':1', tls: {cert_file: /a, ca_file: /c}}", "f:3:24: admin.tls.key_file: is missing"},
		{"", "admin: {address: ':1', tls: {cert_file: a, key_file: /b, ca_file: /c}}", `f:3:30: admin.tls.cert_file: must be an absolute path, not "a"`},
		{"", "metrics: {address: '80'}", `f:3:11: metrics.address: must be host:port with a port of 0 to 65535, not "80"`},
		{"", "metrics: {address: ':65536'}", `f:3:11: metrics.address: must be host:port with a port of 0 to 65535, not ":65536"`},
		{"", "metrics: {address: ':-1'}", `f:3:11: metrics.address: must be host:port with a port of 0 to 65535, not ":-1"`},
		{"", "metrics: {address: ':http'}", `f:3:11: metrics.address: must be host:port with a port of 0 to 65535, not ":http"`},
		{"", "secret: {names: ['']}", "f:3:18: secret.names[0]: must be a pattern of names, such as *_PIN"},
		{"", "secret: {values: [a secret, short]}", "f:3:29: secret.values[1]: must have at least 6 bytes: shorter values occur by chance, and are not masked"},
		{"", "secret: {files: [db]}", `f:3:18: secret.files[0]: must be an absolute path, not "db"`},
		{"", "secret: {files: ['']}", "f:3:18: secret.files[0]: must be an absolute path"},
		{"kind: ", "", "f:2:20: process_groups[0].kind: must be service or job, not an empty value"},
		{"logs: {max_files: -9223372036854775808}", "", "f:2:21: process_groups[0].logs.max_files: must be 1 or more, not -9223372036854775807"},
		{"depends_on: {db: ''}", "", `f:2:27: process_groups[0].depends_on.db: must be started, healthy or completed, not ""`},
		{"mask: no", "", `f:2:20: process_groups[0].mask: must be on or off, not "no"`},
		{"canary: {wait: -1s}", "", "f:2:23: process_groups[0].canary.wait: must be 0s to 24h0m0s, not -1s"},
		{"canary: {wait: 1us}", "", "f:2:23: process_groups[0].canary.wait: must be 0, or at least 1ms, not 1µs"},
		{"canary: {check: {command: judge}}", "", "f:2:14: process_groups[0].canary.instances: must be 1 or more: a check needs a canary"},
		{"canary: {instances: 1, check: {command: ./judge}}", "", `f:2:45: process_groups[0].canary.check.command: must be an absolute path, or a name that is looked up in PATH, not "./judge"`},
		{"canary: {instances: 1, check: {args: [a]}}", "", "f:2:37: process_groups[0].canary.check.command: is empty; name a program"},
		{"canary: {instances: 1, check: {command: judge, prometheus: 'http://p'}}", "", "f:2:61: process_groups[0].canary.check.prometheus: cannot be used with command; use one of them"},
		{"canary: {instances: 1, check: {prometheus: 'http://p'}}", "", "f:2:37: process_groups[0].canary.check.query: is missing; prometheus needs one, such as sum(rate(errors[1m])) < bool 1"},
		{"canary: {instances: 1, check: {query: up}}", "", "f:2:45: process_groups[0].canary.check.query: has no effect without prometheus"},
		{"canary: {instances: 1, check: {prometheus: 'localhost:9090', query: up}}", "", "f:2:45: process_groups[0].canary.check.prometheus: must be the address of a server, such as http://127.0.0.1:9090, without a user name, password or query"},
		{"canary: {instances: 1, check: {prometheus: 'http://user:hunter2@p', query: up}}", "", "f:2:45: process_groups[0].canary.check.prometheus: must be the address of a server, such as http://127.0.0.1:9090, without a user name, password or query"},
		{"canary: {instances: 1, check: {command: judge, interval: 0s}}", "", "f:2:61: process_groups[0].canary.check.interval: must be 1ms to 24h0m0s, not 0s"},
		{"canary: {instances: 1, check: {command: judge, timeout: 25h}}", "", "f:2:61: process_groups[0].canary.check.timeout: must be 1ms to 24h0m0s, not 25h0m0s"},
		{"progress_deadline: -1s", "", "f:2:14: process_groups[0].progress_deadline: must be 0s to 24h0m0s, not -1s"},
		{"min_ready_seconds: -1", "", "f:2:14: process_groups[0].min_ready_seconds: must be 0s to 24h0m0s, not -1s"},
		{"min_ready_seconds: -1, progress_deadline: -1s", "", "f:2:14: process_groups[0].min_ready_seconds: must be 0s to 24h0m0s, not -1s\nf:2:37: process_groups[0].progress_deadline: must be 0s to 24h0m0s, not -1s"},
		{"retry: {limit: -1}", "", "f:2:22: process_groups[0].retry.limit: must be 0 or more, not -1"},
		{"retry: {initial_backoff: -1s}", "", "f:2:22: process_groups[0].retry.initial_backoff: must be 0s to 24h0m0s, not -1s"},
		{"retry: {initial_backoff: 25h}", "", "f:2:22: process_groups[0].retry.initial_backoff: must be 0s to 24h0m0s, not 25h0m0s"},
		{"retry: {initial_backoff: 0s, max_backoff: -1s}", "", "f:2:43: process_groups[0].retry.max_backoff: must be 0s to 24h0m0s, not -1s"},
		{"restart_policy: {crash_loop_limit: -1}", "", "f:2:31: process_groups[0].restart_policy.crash_loop_limit: must be 0 or more, not -1"},
		{"restart_policy: {reset_after: -1s}", "", "f:2:31: process_groups[0].restart_policy.reset_after: must be 0s to 24h0m0s, not -1s"},
		{"restart_policy: {initial_backoff: 2m}", "", "f:2:14: process_groups[0].restart_policy.max_backoff: 1m0s is shorter than initial_backoff, 2m0s"},
		{"shutdown: {max_duration: 0s}", "", "f:2:25: process_groups[0].shutdown.max_duration: must be 1ms to 24h0m0s, not 0s"},
		{"shutdown: {max_duration: 0s, grace_period: 1s}", "", "f:2:25: process_groups[0].shutdown.max_duration: must be 1ms to 24h0m0s, not 0s"},
		{"shutdown: {grace_period: -1s}", "", "f:2:25: process_groups[0].shutdown.grace_period: must be 0s to 24h0m0s, not -1s"},
		{"shutdown: {sigterm_timeout: -1s}", "", "f:2:25: process_groups[0].shutdown.sigterm_timeout: must be 0s to 24h0m0s, not -1s"},
		{"shutdown: {poll_interval: 0s}", "", "f:2:25: process_groups[0].shutdown.poll_interval: must be 1ms to 24h0m0s, not 0s"},
		{"shutdown: {deregister_delay: -1s}", "", "f:2:25: process_groups[0].shutdown.deregister_delay: must be 0s to 24h0m0s, not -1s"},
		{"success_exit_codes: []", "", "f:2:14: process_groups[0].success_exit_codes: must have at least one; the default is [0]"},
		{"success_exit_codes: [-1]", "", "f:2:35: process_groups[0].success_exit_codes[0]: must be 0 to 255, not -1"},
		{"livenessProbe: {periodSeconds: 5}", "", "f:2:14: process_groups[0].livenessProbe: checks nothing; add one of httpGet with a port, tcpSocket with a port, exec with a command and grpc with a port"},
		{"livenessProbe: {tcpSocket: {port: 1}, grpc: {port: 2}}", "", "f:2:14: process_groups[0].livenessProbe: has tcpSocket and grpc; a probe has exactly one way to check"},
		{"livenessProbe: {http: {port: 1}}", "", "f:2:30: process_groups[0].livenessProbe.http: unknown key; did you mean httpGet?"},
		{"livenessProbe: {tcpSocket: {port: 65536}}", "", `f:2:42: process_groups[0].livenessProbe.tcpSocket.port: must be 1 to 65535, or {port} for the port that the launcher chooses for each process, not "65536"`},
		{"livenessProbe: {grpc: {port: grpc-health}}", "", `f:2:37: process_groups[0].livenessProbe.grpc.port: must be 1 to 65535, or {port} for the port that the launcher chooses for each process, not "grpc-health"`},
		{"startupProbe: {httpGet: {port: 1, path: healthz}}", "", `f:2:48: process_groups[0].startupProbe.httpGet.path: must be a path with an optional query, such as /healthz, not "healthz"`},
		{"startupProbe: {httpGet: {port: 1, scheme: http}}", "", `f:2:48: process_groups[0].startupProbe.httpGet.scheme: must be HTTP or HTTPS, not "http"`},
		{"startupProbe: {httpGet: {port: 1, httpHeaders: [{name: 'a b', value: c}]}}", "", "f:2:48: process_groups[0].startupProbe.httpGet.httpHeaders: must each have the name of a header, and a value of one line"},
		{"startupProbe: {exec: {command: [true]}}", "", "f:2:46: process_groups[0].startupProbe.exec.command[0]: must be a string, not a boolean; put it in quotes"},
		{"startupProbe: {exec: {command: ['']}}", "", "f:2:36: process_groups[0].startupProbe.exec.command: is empty; name a program"},
		{"startupProbe: {tcpSocket: {port: 1}, successThreshold: 2}", "", "f:2:51: process_groups[0].startupProbe.successThreshold: must be 1, not 2: only a readiness probe is repeated after a success"},
		{"startupProbe: {tcpSocket: {port: 1}, failureThreshold: -1}", "", "f:2:51: process_groups[0].startupProbe.failureThreshold: must be 1 or more, not -1"},
		{"startupProbe: {tcpSocket: {port: 1}, periodSeconds: -1}", "", "f:2:51: process_groups[0].startupProbe.periodSeconds: must be 1ms to 24h0m0s, not -1s"},
		{"startupProbe: {tcpSocket: {port: 1}, timeoutSeconds: 1us}", "", "f:2:51: process_groups[0].startupProbe.timeoutSeconds: must be 1ms to 24h0m0s, not 1µs"},
		{"startupProbe: {tcpSocket: {port: 1}, initialDelaySeconds: 25h}", "", "f:2:51: process_groups[0].startupProbe.initialDelaySeconds: must be 0s to 24h0m0s, not 25h0m0s"},
		{"startupProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 11}", "", "f:2:51: process_groups[0].startupProbe.terminationGracePeriodSeconds: 11s is longer than max_duration, 10s"},
		{"readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}", "", "f:2:53: process_groups[0].readinessProbe.terminationGracePeriodSeconds: has no effect: a readiness probe stops no process"},
		{"watchdog: 5s, protocol: grpc", "", "f:2:14: process_groups[0].watchdog: needs protocol auto or notify: by other protocols, a process sends no WATCHDOG=1"},
		{"liveness: {interval: -1s}", "", "f:2:25: process_groups[0].liveness.interval: must be 0s to 24h0m0s, not -1s"},
		{"liveness: {timeout: 0s}", "", "f:2:25: process_groups[0].liveness.timeout: must be 1ms to 24h0m0s, not 0s"},
		{"liveness: {interval: -1s, timeout: 3s}", "", "f:2:25: process_groups[0].liveness.interval: must be 0s to 24h0m0s, not -1s"},
		{"lifecycle: {transport: tcp, tls: {cert_file: /a, key_file: /b, ca_file: /c}}", "", "f:2:14: process_groups[0].lifecycle.address: is missing; transport tcp needs one, such as 127.0.0.1:0"},
		{"lifecycle: {address: '127.0.0.1:0'}", "", "f:2:26: process_groups[0].lifecycle.address: is only for transport tcp"},
		{"lifecycle: {transport: tcp, address: x, tls: {cert_file: /a, key_file: /b, ca_file: /c}}", "", `f:2:42: process_groups[0].lifecycle.address: must be host:port with a port of 0 to 65535, not "x"`},
		{"listeners: [{address: ':1'}]", "", "f:2:26: process_groups[0].listeners[0].name: is missing"},
		{"listeners: [{name: a}]", "", "f:2:26: process_groups[0].listeners[0].address: is missing"},
		{"listeners: [{name: a}, {name: b}]", "", "f:2:26: process_groups[0].listeners[0].address: is missing\nf:2:37: process_groups[0].listeners[1].address: is missing"},
		{"listeners: [{name: a, address: ':1'}, {name: a, address: ':2'}]", "", `f:2:53: process_groups[0].listeners[1].name: "a" is already the name of a listener, in line 2`},
		{"listeners: [{name: a, network: unix, address: a}]", "", `f:2:51: process_groups[0].listeners[0].address: must be an absolute path, not "a"`},
		{"pre_stop: [{command: a, timeout: 0s}]", "", "f:2:38: process_groups[0].pre_stop[0].timeout: must be 1ms to 24h0m0s, not 0s"},
		{"pre_stop: [{args: [a]}]", "", "f:2:25: process_groups[0].pre_stop[0].command: is missing; name a program"},
		{"command: ''", "", "f:2:14: process_groups[0].command: is missing; name a program"},
		{"command: /a/../b", "", `f:2:14: process_groups[0].command: must be a clean path: "/b", not "/a/../b"`},
		{"env: {'': a}", "", "f:2:20: process_groups[0].env.: the name of a variable cannot be empty, or contain = or NUL"},
		{"logs: {max_size: 1}", "", "f:2:21: process_groups[0].logs.max_size: must be at least 1KiB, not 1"},
		{"logs: {max_line: 63}", "", "f:2:21: process_groups[0].logs.max_line: must be 64 to max_size (10MiB), not 63"},
		{"logs: {buffer: 1KiB}", "", "f:2:21: process_groups[0].logs.buffer: must be max_line (64KiB) or more, not 1KiB"},
		{"logs: {max_files: 0}", "", "f:2:21: process_groups[0].logs.max_files: must be 1 or more, not 0"},
		{"export: {grpc_port: 0}", "", "f:2:23: process_groups[0].export.grpc_port: must be 1 to 65535, not 0"},
		{"desired_instances: -1, min_healthy_instances: 1001", "", "f:2:14: process_groups[0].desired_instances: must be 0 to 10000, not -1"},
		{"desired_instances: -1, min_healthy_instances: -1", "", "f:2:14: process_groups[0].desired_instances: must be 0 to 10000, not -1\nf:2:37: process_groups[0].min_healthy_instances: must be 0 or more, not -1"},
		{"min_healthy_instances: -1", "", "f:2:14: process_groups[0].min_healthy_instances: must be 0 to desired_instances, which is 1, not -1"},
		{"depends_on: [kv]", "total_deadline: 9ms", "f:2:27: process_groups[0].depends_on[0]: forms a cycle: kv waits for kv\nf:3:1: total_deadline: must be 10ms to 24h0m0s, not 9ms"},
		{"~: b", "", "f:2:14: process_groups[0]: has a key that is an empty value; a key must be a name"},
		{"new: 1", "", "f:2:14: process_groups[0].new: unknown key; the keys here are args, canary, clear_env, command, depends_on, desired_instances, env, env_file, export, group, health_check_timeout, kind, lifecycle, limits, listeners, liveness, livenessProbe, logs, mask, max_surge, min_healthy_instances, min_ready_seconds, name, on_failure, on_launcher_death, pre_stop, progress_deadline, protocol, readinessProbe, restart_policy, retry, rlimits, shutdown, startupProbe, stop_signals, success_exit_codes, user, watchdog, working_dir"},
		{"limits: {memory: 1024}", "", "f:2:23: process_groups[0].limits.memory: must be at least 1MiB, or 0 for no limit, not 1024"},
		{"limits: {cpus: 0.001}", "", "f:2:23: process_groups[0].limits.cpus: must be 0.01 to 10000, or 0 for no limit, not 0.001"},
		{"limits: {cpus: .inf}", "", "f:2:29: process_groups[0].limits.cpus: must be a number, such as 0.5, not .inf"},
		{"limits: {if_unavailable: maybe}", "", `f:2:23: process_groups[0].limits.if_unavailable: must be refuse or warn, not "maybe"`},
		{"rlimits: {nofiles: 1}", "", "f:2:24: process_groups[0].rlimits.nofiles: is not the name of a limit; the names are as, core, cpu, data, fsize, memlock, nofile, nproc, stack"},
		{"rlimits: {nofile: 2:1}", "", "f:2:24: process_groups[0].rlimits.nofile: the soft limit is more than the hard limit: 2:1"},
		{"rlimits: {nofile: many}", "", `f:2:24: process_groups[0].rlimits.nofile: must be soft:hard or one number for both, such as 1024:4096, 65536 or unlimited, not "many"`},
		{"rlimits: {nofile: 1.5}", "", "f:2:32: process_groups[0].rlimits.nofile: must be a string, not a fraction; put it in quotes"},
		{"depends_on: {db: ready}", "", `f:2:27: process_groups[0].depends_on.db: must be started, healthy or completed, not "ready"`},
		{"depends_on: {db: started}", "", `f:2:27: process_groups[0].depends_on[0]: there is no group "db"`},
		{"env_file: [a.env]", "", `f:2:25: process_groups[0].env_file[0]: must be an absolute path, not "a.env"`},
		{"shutdwn: 1", "", "f:2:14: process_groups[0].shutdwn: unknown key; did you mean shutdown?"},
		{"names: 1", "", "f:2:14: process_groups[0].names: unknown key; did you mean name?"},
	} {
		text := "process_groups:\n- name: kv\n"
		if c.group != "" {
			text = "process_groups:\n- {name: kv, " + c.group + "}\n"
		}
		t.Run(c.group+c.top, func(t *testing.T) {
			_, err := config.Parse("f", []byte(text+c.top))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A rule of package launcher holds in a file even if no key sets its field.
func TestParse_ReportsBrokenRuleOfFieldThatNoKeySets(t *testing.T) {
	defer config.WithoutKey("Restart.CrashLimit")()
	_, err := config.Parse("f", []byte("process_groups:\n- {name: kv, restart_policy: {crash_loop_limit: -1}}\n"))
	testkit.Equal(t, "error", testkit.ErrorText(err), "f:2:3: process_groups[0]: Restart.CrashLimit: must be 0 or more, not -1")
}

// Configurations that look wrong, but are valid.
func TestParse_AcceptsConfigurationsThatOnlyLookWrong(t *testing.T) {
	const tcp = "lifecycle: {transport: tcp, address: '127.0.0.1:5000', tls: {cert_file: /a, key_file: /b, ca_file: /c}}"
	for name, text := range map[string]string{
		"a fixed port for one process":           "process_groups: [{name: kv, min_healthy_instances: 0, max_surge: 0, " + tcp + "}]",
		"port 0 twice":                           "process_groups: [{name: a, listeners: [{name: a, address: ':0'}, {name: b, address: ':0'}]}]",
		"port 0 of two processes":                strings.ReplaceAll("process_groups: ["+alone("a")+", "+alone("b")+"]", ":5000", ":0"),
		"port 0 of a host name twice":            "process_groups: [{name: a, listeners: [{name: a, address: 'localhost:0'}, {name: b, address: 'localhost:0'}]}]",
		"a host name on tcp and tcp6":            "process_groups: [{name: a, listeners: [{name: a, address: 'localhost:80'}, {name: b, network: tcp6, address: 'localhost:80'}]}]",
		"all addresses of IPv6 and a host name":  "process_groups: [{name: a, listeners: [{name: a, network: tcp6, address: ':80'}, {name: b, address: 'localhost:80'}]}]",
		"metrics without a host are 127.0.0.1":   "metrics: {address: ':80'}\nprocess_groups: [{name: a, listeners: [{name: a, address: '127.0.0.2:80'}, {name: b, address: 'example.org:80'}]}]",
		"keys whose lines are commented out":     "process_groups:\n- name: kv\n  shutdown:\n  #  max_duration: 1s\n  args:\n  #- a\n  env:\n  # a: b\n",
		"CR LF line ends":                        "process_groups:\r\n- name: kv\r\n",
		"the replacement character":              "process_groups: [{name: kv, args: ['\uFFFD']}]",
		"UTF-16":                                 encode("\uFEFFprocess_groups: [{name: kv}]", false),
		"UTF-16, big endian":                     encode("\uFEFFprocess_groups: [{name: kv}]", true),
		"a liveness timeout without checks":      "process_groups: [{name: kv, liveness: {interval: 0s, timeout: 3s}}]",
		"a check of canaries that is turned off": "process_groups: [{name: kv, canary: {instances: 1, check: {command: '${NO_SUCH_VARIABLE:-}'}}}]",
		"a liveness timeout over the interval":   "process_groups: [{name: kv, liveness: {interval: 1s, timeout: 3s}}]",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := config.Parse("f", []byte(text)); err != nil {
				t.Error(err)
			}
		})
	}
}

// encode encodes a text as UTF-16.
func encode(text string, big bool) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(text)) {
		if big {
			u = u<<8 | u>>8
		}
		b.Write([]byte{byte(u), byte(u >> 8)})
	}
	return b.String()
}

// Secrets in arguments of hooks are masked like those of programs.
func TestPrint_MasksSecretsInArgumentsOfHooks(t *testing.T) {
	// A secret as short as q7 is masked only as the value of --token, and not in other texts.
	c := parse(t, "process_groups: [{name: kv, pre_stop: [{command: a, args: [--token, q7]}]}]")
	got := print(t, c)
	if strings.Contains(got, "q7") || !strings.Contains(got, "***") {
		t.Errorf("the output has a secret:\n%s", got)
	}
	testkit.Equal(t, "the arguments of the hook themselves have changed", c.Groups[0].PreStop[0].Command[1:], []string{"--token", "q7"})
}
