// Package client is what a process links that a launcher starts and stops. The same binary runs unchanged under the
// launcher, systemd, Kubernetes, Nomad, and in a terminal:
//
//	func main() {
//		life, err := client.Serve()
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer life.Close()
//
//		s := ctxshutdown.New(context.Background())
//		life.Shutdown.Track(s) // who holds guards is what the launcher shows when it is asked who blocks
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
// Under a launcher, the Shutdown call of its protocol; elsewhere SIGTERM or SIGINT, which is Shutdown with that reason and
// the time limits of [WithLimits], or of TERMINATION_GRACE_PERIOD_SECONDS. Asking again changes nothing, except that a signal that comes while the process drains
// already means that the patience of somebody is at its end: it ends the context of the drain.
//
// # Who is told what
//
//	                     the launcher         grpc.health.v1         systemd, where NOTIFY_SOCKET is set
//	Readiness.Set(Ready) READY, pushed        SERVING                READY=1
//	Shutdown             DRAINING             NOT_SERVING, first     STOPPING=1
//	RequestMoreTime      need_more_time       -                      EXTEND_TIMEOUT_USEC
//	Run's drain is over  COMPLETE, pushed     -                      -
//
// What a check comes to is looked at whenever the launcher asks, and once a second: the other two follow it where there is no
// launcher, too, except that READY=1 cannot be taken back.
//
// grpc.health.v1 is served beside the protocol; without a launcher at the port of [EnvHealth]; and by a server of the program, with
// [Lifecycle.RegisterHealth].
//
// The service of the protocol has a socket of its own, so that it answers until the very end, whatever happens to the
// listeners of the program.
package client
