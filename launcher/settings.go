package launcher

import (
	"context"

	"github.com/swansong-go/swansong/launcher/internal/process"
	"github.com/swansong-go/swansong/launcher/internal/spec"
)

// Protocol is how the launcher talks to a process. It decides when the process is ready, and how it
// is asked to stop.
//
//	          ready                                 asked to stop     time is extended by
//	Auto      as below, by what the process uses
//	GRPC      when it says so, by a call            by the call       a request
//	Notify    when it sends READY=1                 by StopSignals    EXTEND_TIMEOUT_USEC
//	Signals   when it runs                          by StopSignals    nothing
//
// In every case, a StartupProbe and a ReadinessProbe must succeed as well.
//
// With Auto, a process gets what both GRPC and Notify need, and the launcher uses the one that the
// process uses:
//
//   - GRPC as soon as it answers a call or notifies the launcher. A process that uses both is
//     treated so. Of its other messages, only WATCHDOG and MAINPID count.
//   - Notify when it has sent an sd_notify(3) message, and has not used GRPC.
//   - Signals if it has used neither when its probes succeed, or, without a StartupProbe and a
//     ReadinessProbe, when it has run for a second. It is asked to stop by a call if it answers one
//     by then.
//
// A group remembers whether its last ready process used GRPC or Notify. From then on, a process of
// the group becomes ready only by one of them, so that a slow start is not taken for readiness in a
// roll. A process that says nothing is then not ready within HealthCheckTimeout, and has failed.
// The first process of a group that needs more than a second before it says something counts as
// ready too early; set GRPC or Notify for such a program.
type Protocol = spec.Protocol

const (
	Auto    Protocol = spec.Auto    // the launcher finds out which of the following protocols the process uses; the default
	GRPC    Protocol = spec.GRPC    // the lifecycle protocol, as package client serves it
	Notify  Protocol = spec.Notify  // sd_notify(3) messages, on Linux only
	Signals Protocol = spec.Signals // no messages: the process only gets signals
)

// A Probe checks a process from the outside, as a probe of Kubernetes checks a container, with the
// same fields, defaults and rules. A probe has exactly one of HTTPGet, TCPSocket, Exec and GRPC.
// Durations need not be whole seconds. Its fields are
//
//	// HTTPGet succeeds if the status is 200 to 399. Redirects to the same host are followed. Path is
//	// "/" by default, Host 127.0.0.1, and Scheme "HTTP"; with "HTTPS" the certificate is not verified.
//	HTTPGet struct {
//		Path    string
//		Port    Port
//		Host    string
//		Scheme  string
//		Headers []struct{ Name, Value string }
//	}
//
//	// TCPSocket succeeds if a connection can be made. Host is 127.0.0.1 by default.
//	TCPSocket struct {
//		Port Port
//		Host string
//	}
//
//	// Exec succeeds if the command exits with 0. It is not passed to a shell, has the directory and the
//	// environment of the process, and is killed with all that it has started after Timeout.
//	Exec struct{ Command []string }
//
//	// GRPC succeeds if grpc.health.v1 at the port answers SERVING for the service.
//	GRPC struct {
//		Port    Port
//		Service string
//	}
//
//	InitialDelay     time.Duration // time from the start of the process to the first check; default 0
//	Period           time.Duration // time between the beginnings of two checks; default 10 s
//	Timeout          time.Duration // time that a check may take; default 1 s
//	SuccessThreshold int           // successes in a row that make a success, of a readiness probe; default 1
//	FailureThreshold int           // failures in a row that make a failure; default 3
//	TerminationGrace time.Duration // if not 0, replaces Shutdown.Max after a failure, if it is shorter; not for readiness probes
//
// A Port is a number, or "{port}" for the port that the launcher chooses for each process.
type Probe = spec.Probe

// The types of the fields of a [Probe].
type (
	HTTPGetAction   = spec.HTTPGetAction
	HTTPHeader      = spec.HTTPHeader
	TCPSocketAction = spec.TCPSocketAction
	ExecAction      = spec.ExecAction
	GRPCAction      = spec.GRPCAction
	Port            = spec.Port // the number of a port, or "{port}"
)

// Condition is what has to be true of a group before a group that depends on it starts.
type Condition = spec.Condition

const (
	IsStarted   Condition = spec.Started   // the processes of the group have been started
	IsHealthy   Condition = spec.Healthy   // the group has enough ready processes; the default
	IsCompleted Condition = spec.Completed // the group is a job, and all its processes have ended without a failure
)

// An Rlimit is a limit of the kernel for each process, see setrlimit(2). Its fields are
//
//	Name       string // as, core, cpu, data, fsize, memlock, nofile, nproc or stack
//	Soft, Hard uint64 // in the unit of the kernel; Unlimited is no limit
type Rlimit = spec.Rlimit

// Unlimited is the value of an [Rlimit] that is no limit.
const Unlimited uint64 = spec.Unlimited

// A LimitConfig limits what a process uses together with those that it has started. It needs
// cgroups of version 2 in which the launcher may enable the controllers memory and cpu. Its fields
// are
//
//	Memory        int64         // bytes of memory, at which the kernel ends a process; 0: no limit
//	CPUs          float64       // processors, as in 0.5; 0: no limit
//	IfUnavailable IfUnavailable // what happens where a limit cannot be enforced; default Refuse
type LimitConfig = spec.Limits

// IfUnavailable says what happens if limits cannot be enforced on this machine.
type IfUnavailable = spec.IfUnavailable

const (
	Refuse IfUnavailable = spec.Refuse // Start returns an error; a process that cannot be limited is not started
	Warn   IfUnavailable = spec.Warn   // an alarm says that the limits cannot be enforced, and the process runs without them
)

// A Router sends requests to processes. The launcher calls it with one call at a time for each
// process, from any goroutine. The context of a call ends after two seconds. A call that fails,
// panics or takes longer is reported by an event of the kind [RouterError].
//
// A failed Add is repeated, and the process does not count as available before one has succeeded. A
// Remove may or may not follow a failed Add. A failed Remove is not repeated, and does not keep the
// process from being stopped.
type Router interface {
	Add(ctx context.Context, i Instance) error    // called when the process is ready
	Remove(ctx context.Context, i Instance) error // called when the process is about to be stopped, or has ended
}

// An Instance is a process as a [Router] knows it. Its fields are
//
//	Group, ID string
//	PID       int
//	Socket    string // the value of {socket} in the configuration
//	Port      int    // the value of {port} in the configuration; 0 if it is not used
type Instance = process.Instance
