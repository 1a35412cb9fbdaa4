package lifecycle

import (
	"time"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/notify"
	"github.com/swansong-go/swansong/launcher/internal/probe"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc/codes"
)

// An Event describes something that has happened to a process. The comment of each [EventKind]
// names the fields that events of this kind use, besides Kind and At.
type Event struct {
	Kind EventKind
	At   time.Time

	Code codes.Code // the code of a failed call
	Err  string

	Readiness *pb.ReadinessResponse
	Ack       *pb.ShutdownAck
	Status    *pb.ShutdownStatus

	Reason     string
	Grace      time.Duration // if not zero, this grace period replaces the configured one, and is enforced
	Config     *spec.Group
	DrainError string
	Exit       proc.Exit

	// The following fields tell what an earlier launcher knew about an adopted process. Each is
	// zero if the event that it names has not happened.

	ReadyAt      time.Time
	StopAt       time.Time // when the earlier launcher decided to stop the process
	AskedAt      time.Time // when the process was first asked to stop
	SignalsSent  int       // how many stop signals the process got
	GrantedUntil time.Time // the deadline that the process was granted by its last request for more time

	Probe        probe.Role
	Notification notify.Message
	Uses         spec.Protocol // the protocol that an adopted process was known to use
	Reported     Reported      // what an adopted process had reported to the earlier launcher
	Warming      bool          // an adopted process had become ready, and its readiness probe failed

	Limit time.Time // when a launcher that is being stopped sends the process SIGTERM
}

// Reported is what a process has reported about itself and will not report again. Do not
// change the keys: an earlier launcher has written them to the state file.
type Reported struct {
	Ready    bool `json:"said_ready,omitempty"`    // the process has reported that it is ready, or its protocol has no such report
	Stopping bool `json:"said_stopping,omitempty"` // the process has sent STOPPING=1 before it was asked to stop
}

// EventKind is the kind of an [Event]. It determines which fields of the Event are set.
type EventKind int

const (
	OnSpawned      EventKind = iota // the process was started
	OnAdopted                       // the process was started by an earlier launcher; sets ReadyAt, StopAt, AskedAt, SignalsSent, GrantedUntil, Reason, Grace, Uses, Reported, Warming
	OnSpawnFailed                   // the process could not be started or adopted; sets Err
	OnReadiness                     // GetReadinessStatus returned; sets Readiness, or Code and Err
	OnPushedReady                   // the process reported by itself that it is ready; sets Reason, to its message
	OnStop                          // the process is to be stopped; sets Reason and Grace
	OnDeregistered                  // the process has left routing, and its pre-stop hooks have been run
	OnAck                           // Shutdown returned; sets Ack, or Code and Err
	OnStatus                        // GetShutdownStatus returned; sets Status, or Code and Err
	OnPushedEnd                     // the process reported by itself that its drain has ended; sets DrainError, and Reason, to its message
	OnLessTime                      // the launcher is being stopped, so the process may get less time; sets Limit
	OnTerminate                     // the process is to be sent SIGTERM at once; sets Reason
	OnForce                         // the process is to be killed at once; sets Reason
	OnConfig                        // the configuration of the group has changed; sets Config
	OnProbe                         // a probe has reached its first verdict, success or failure, or has changed it; sets Probe, and after a failure Err
	OnNotified                      // the process has sent an sd_notify(3) message; sets Notification
	OnTick                          // the time that Next has returned has come
	OnExited                        // the process has exited, and is a zombie
	OnReaped                        // the process has been reaped; sets Exit
)

// An Action is what the state machine tells the launcher to do with a process.
type Action struct {
	Kind    ActionKind
	Signal  string // in DoSignal, the signal to send
	Request int    // in DoReportExtension, the number of the request for more time
	Report  bool   // in DoAskStatus, whether to ask also what the drain waits for, because the process may soon be ended
}

// ActionKind is the kind of an [Action].
type ActionKind int

const (
	DoAskReadiness      ActionKind = iota // call GetReadinessStatus; its answer is the event OnReadiness
	DoRegister                            // add the process to routing
	DoDeregister                          // remove the process from routing, run its hooks; OnDeregistered follows
	DoLeaveRouting                        // remove the process from routing; DoRegister may follow
	DoShutdown                            // call Shutdown; OnAck follows
	DoAskStatus                           // call GetShutdownStatus; OnStatus follows
	DoSignal                              // send the signal in Action.Signal to the process
	DoTerminate                           // send SIGTERM to the process and all that it has started
	DoKill                                // send SIGKILL to the process and all that it has started
	DoReportUnconfirmed                   // report that SIGKILL was sent, and that the process is not known to have ended
	DoReportGrace                         // report that the process still drains after its grace period; see [Machine.GraceReport]
	DoReportExtension                     // report that the process has requested more time
)
