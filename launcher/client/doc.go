// Package client lets a process take part in the launcher's protocol: it reports its readiness,
// drains when it is asked to stop, and says what blocks it. The same binary runs unchanged under
// the launcher, systemd, Kubernetes, Nomad, and in a terminal:
//
//	func main() {
//		life, err := client.Serve()
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer life.Close()
//
//		s := ctxshutdown.New(context.Background())
//		life.Shutdown.Track(s) // the launcher shows the guards of s as what blocks the shutdown
//		… start working …
//		life.Readiness.Set(client.Ready, "listening")
//
//		err = life.Shutdown.Run(context.Background(), func(ctx context.Context) error {
//			return s.Shutdown().Wait(ctx)
//		})
//		life.Close()
//		os.Exit(client.ExitCode(err))
//	}
//
// # What asks the process to stop
//
// Under a launcher, a call of the method Shutdown of its protocol asks the process to stop.
// Elsewhere SIGTERM or SIGINT does: it is handled like Shutdown, with the signal as the reason and
// the time limits of [WithLimits] or TERMINATION_GRACE_PERIOD_SECONDS. Further requests change
// nothing, except that a signal during the drain ends the context of the drain.
//
// # Notifications
//
//	                     the launcher         grpc.health.v1         systemd, where NOTIFY_SOCKET is set
//	Readiness.Set(Ready) READY, pushed        SERVING                READY=1
//	Shutdown             DRAINING             NOT_SERVING, first     STOPPING=1
//	RequestMoreTime      need_more_time       -                      EXTEND_TIMEOUT_USEC
//	the drain has ended  COMPLETE, pushed     -                      -
//
// The checks are evaluated whenever the launcher asks, and once a second, so that health and
// systemd follow them without a launcher as well. READY=1 cannot be taken back.
//
// grpc.health.v1 is served on the socket of the protocol; without a launcher, on the port of
// [EnvHealth]; and by a server of the program, with [Lifecycle.RegisterHealth].
//
// The service of the protocol has a socket of its own, so it answers until the end of the process,
// even after the program has closed its listeners.
package client
