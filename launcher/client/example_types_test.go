//go:build unix

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher/client"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// While it drains, a process reports its progress and what it waits for, and requests more time
// before its grace period is over.
func ExampleShutdownCoordinator() {
	path, remove := exampleSocket()
	defer remove()
	life, err := client.Serve(client.WithAddress(path))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()
	fmt.Println("served by a socket:", life.Addr().Network())
	to, conn := asLauncher(path)
	defer conn.Close()
	status := func() {
		st, err := to.GetShutdownStatus(context.Background(), &pb.ShutdownStatusRequest{})
		if err != nil {
			fmt.Println(err)
			return
		}
		m := st.GetMetrics()
		fmt.Println(st.GetState(), st.GetMessage(), m.GetInFlightRequests(), m.GetBlockingOperations(), st.GetNeedMoreTime())
	}

	go to.Shutdown(context.Background(), &pb.ShutdownRequest{Reason: "a new build"})
	<-life.Shutdown.Requested()
	err = life.Shutdown.Run(context.Background(), func(ctx context.Context) error {
		life.Shutdown.SetMetrics(client.Metrics{InFlight: 2, Connections: 1})
		life.Shutdown.SetMessage("two orders are left")
		status()

		over := life.Shutdown.Block("flush to the broker")
		life.Shutdown.RequestMoreTime(5 * time.Second)
		status()
		over()

		life.Shutdown.SetMetrics(client.Metrics{})
		life.Shutdown.SetMessage("done")
		status()
		return nil
	})
	fmt.Println("drained:", err)
	// Output:
	// served by a socket: unix
	// SHUTDOWN_DRAINING two orders are left 2 [] false
	// SHUTDOWN_BLOCKED two orders are left 2 [flush to the broker] true
	// SHUTDOWN_DRAINING done 0 [] true
	// drained: <nil>
}

// The guards of a tracked scope are reported as requests in flight, and as what blocks the
// shutdown.
func ExampleShutdownCoordinator_Track() {
	path, remove := exampleSocket()
	defer remove()
	life, err := client.Serve(client.WithAddress(path))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()
	s := ctxshutdown.New(context.Background(), ctxshutdown.WithName("shop"))
	defer s.Shutdown()
	life.Shutdown.Track(s)
	defer s.Guard().Release() // the guard stands for an order that the shop is handling

	to, conn := asLauncher(path)
	defer conn.Close()
	st, err := to.GetShutdownStatus(context.Background(), &pb.ShutdownStatusRequest{})
	fmt.Println(st.GetMetrics().GetInFlightRequests(), st.GetMetrics().GetBlockingOperations(), err)
	// Output:
	// 1 [shop ×1] <nil>
}

// Code that knows that no time is left, such as a watchdog, cuts the drain short.
func ExampleShutdownCoordinator_Cut() {
	shutdown := client.NewShutdownCoordinator("web-1")
	shutdown.Request(client.Request{Reason: "a new build"})
	err := shutdown.Run(context.Background(), func(ctx context.Context) error {
		shutdown.Cut(errors.New("the battery is empty"))
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output:
	// client: drain failed (a new build): the battery is empty
}

// Kubernetes and load balancing clients call the server of the program itself.
func ExampleLifecycle_RegisterHealth() {
	life, err := client.Serve()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()
	srv := grpc.NewServer()
	life.RegisterHealth(srv)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go srv.Serve(ln)
	defer srv.Stop()

	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	ask := func() {
		out, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(out.GetStatus(), err)
	}
	life.Readiness.Set(client.Ready, "listening")
	ask()
	life.Shutdown.Request(client.Request{Reason: "a new build"})
	ask()
	// Output:
	// SERVING <nil>
	// NOT_SERVING <nil>
}
