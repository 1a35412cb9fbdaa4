package launcher

import "github.com/swansong-go/swansong/launcher/internal/spec"

// Condition says when a group lets a group start that depends on it.
type Condition = spec.Condition

const (
	IsStarted   Condition = spec.Started   // its processes have been started
	IsHealthy   Condition = spec.Healthy   // it has enough ready processes; the default
	IsCompleted Condition = spec.Completed // it is a job, and all its processes have ended without a failure
)

// An Rlimit is a limit of the kernel for each process, see setrlimit(2). Its fields are
//
//	Name       string // as, core, cpu, data, fsize, memlock, nofile, nproc or stack
//	Soft, Hard uint64 // in the unit of the kernel; Unlimited is no limit
type Rlimit = spec.Rlimit

// Unlimited is the value of an [Rlimit] that is no limit.
const Unlimited uint64 = spec.Unlimited

// A LimitConfig limits what a process uses together with those that it has started. It needs cgroups
// of version 2 in which the launcher may enable the controllers memory and cpu. Its fields are
//
//	Memory        int64         // bytes of memory, at which the kernel ends a process; 0: no limit
//	CPUs          float64       // processors, as in 0.5; 0: no limit
//	IfUnavailable IfUnavailable // what happens where a limit cannot be kept; default Refuse
type LimitConfig = spec.Limits

// IfUnavailable says what happens if limits cannot be kept on this machine.
type IfUnavailable = spec.IfUnavailable

const (
	Refuse IfUnavailable = spec.Refuse // Start returns an error; a process that cannot be limited is not started
	Warn   IfUnavailable = spec.Warn   // an alarm says so, and the process runs without the limits
)
