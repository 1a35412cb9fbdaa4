//go:build unix

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/swansong-go/swansong/launcher/client"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// exampleSocket returns a path for a unix socket, and a function that removes it.
func exampleSocket() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "swc") // the paths of sockets have to be short
	if err != nil {
		panic(err)
	}
	return filepath.Join(dir, "s"), func() { os.RemoveAll(dir) }
}

// asLauncher calls a process, as its launcher would.
func asLauncher(path string) (pb.ProcessLifecycleInterfaceClient, *grpc.ClientConn) {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	return pb.NewProcessLifecycleInterfaceClient(conn), conn
}

// Without a launcher, as in a terminal or a container, a signal asks the process to stop.
func ExampleServe() {
	life, err := client.Serve()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()
	life.Readiness.Set(client.Ready, "listening")

	syscall.Kill(os.Getpid(), syscall.SIGTERM) // stands for a signal from another process, such as the launcher
	err = life.Shutdown.Run(context.Background(), func(ctx context.Context) error {
		fmt.Println("readiness:", life.Readiness.State())
		return nil
	})
	fmt.Println("drained:", err)
	// Output:
	// readiness: DRAINING
	// drained: <nil>
}

// The exit code of main follows from the error of Run.
func ExampleExitCode() {
	fmt.Println(client.ExitCode(nil), client.ExitCode(errors.New("the queue could not be written")))
	// Output:
	// 0 1
}

// A program can serve the protocol on a gRPC server of its own, if no other user can connect to it.
func ExampleRegister() {
	path, remove := exampleSocket()
	defer remove()
	shutdown, readiness := client.NewShutdownCoordinator("web-1"), client.NewReadinessCoordinator("web-1")
	srv := grpc.NewServer()
	client.Register(srv, shutdown, readiness)
	ln, err := net.Listen("unix", path)
	if err != nil {
		fmt.Println(err)
		return
	}
	go srv.Serve(ln)
	defer srv.Stop()

	to, conn := asLauncher(path)
	defer conn.Close()
	ack, err := to.Shutdown(context.Background(), &pb.ShutdownRequest{ProcessId: "web-1", Reason: "a new build"})
	fmt.Println(ack.GetMessage(), err)
	fmt.Println("readiness:", readiness.State())
	// Output:
	// draining: a new build <nil>
	// readiness: DRAINING
}

// A program that serves on inherited listeners, and listens itself if there are none, runs under a
// launcher, under systemd and in a terminal.
func ExampleListeners() {
	inherited, err := client.Listeners()
	if err != nil {
		fmt.Println(err)
		return
	}
	var ln net.Listener
	for _, l := range inherited {
		if l.Name == "http" {
			ln = l
		}
	}
	if ln == nil {
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			fmt.Println(err)
			return
		}
	}
	srv := &http.Server{}
	go srv.Serve(ln)
	defer srv.Close()
	fmt.Println("inherited:", len(inherited), "serving:", ln.Addr().Network())
	// Output:
	// inherited: 0 serving: tcp
}

// A launcher sets the address of the socket in the environment. Without a launcher, WithAddress
// makes the process available to other tools that use the protocol.
func ExampleWithAddress() {
	path, remove := exampleSocket()
	defer remove()
	life, err := client.Serve(client.WithAddress(path))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()
	life.Readiness.Set(client.Ready, "listening")

	to, conn := asLauncher(path)
	defer conn.Close()
	out, err := to.GetReadinessStatus(context.Background(), &pb.ReadinessRequest{})
	fmt.Println(out.GetState(), err)
	// Output:
	// READY <nil>
}

// A process refuses calls of a launcher that are meant for a process with another id.
func ExampleWithProcessID() {
	path, remove := exampleSocket()
	defer remove()
	life, err := client.Serve(client.WithAddress(path), client.WithProcessID("web-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()

	to, conn := asLauncher(path)
	defer conn.Close()
	_, err = to.Shutdown(context.Background(), &pb.ShutdownRequest{ProcessId: "web-2"})
	fmt.Println(err)
	// Output:
	// rpc error: code = NotFound desc = the call is for process "web-2", and this is process "web-1"; give each process an address of its own
}

// A signal has no time limits. If another limit applies, such as terminationGracePeriodSeconds of a
// pod, WithLimits should stay below it.
func ExampleWithLimits() {
	life, err := client.Serve(client.WithLimits(5*time.Second, 25*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()

	syscall.Kill(os.Getpid(), syscall.SIGTERM)
	<-life.Shutdown.Requested()
	first, _ := life.Shutdown.Request(client.Request{Reason: "not the first"})
	fmt.Println(first.Reason, first.Grace, first.Max)
	// Output:
	// SIGTERM 5s 25s
}

// WithSignals names the signals that request a shutdown. A program that uses SIGINT for another
// purpose, such as a shell, leaves it out.
func ExampleWithSignals() {
	life, err := client.Serve(client.WithSignals(syscall.SIGTERM, syscall.SIGUSR1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()

	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	<-life.Shutdown.Requested()
	fmt.Println("asked to stop")
	// Output:
	// asked to stop
}

func ExampleWithLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{} // omits an attribute whose value differs from run to run
			}
			return a
		},
	}))
	life, err := client.Serve(client.WithLogger(logger))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer life.Close()
	life.Readiness.Set(client.Ready, "listening")
	life.Shutdown.Request(client.Request{Reason: "a new build"})
	life.Shutdown.Run(context.Background(), func(context.Context) error { return nil })
	// Output:
	// level=INFO msg=readiness state=READY message=listening
	// level=INFO msg=readiness state=DRAINING message="a new build"
	// level=INFO msg="asked to stop" reason="a new build" grace=3s max=10s
	// level=INFO msg=drained
}

// Over TCP, both ends present a certificate. A launcher sets the names of the files in the
// environment. Serve fails at once if a file cannot be read.
func ExampleWithTLS() {
	life, err := client.Serve(client.WithAddress(client.TCP+"127.0.0.1:0"), client.WithTLS("web.pem", "web.key", "ca.pem"))
	if err != nil {
		fmt.Println("no certificate:", errors.Is(err, fs.ErrNotExist))
		return
	}
	defer life.Close()
	fmt.Println(life.Addr())
	// Output:
	// no certificate: true
}

// The process is Ready while all checks pass.
func ExampleNewReadinessCoordinator() {
	connected := false
	readiness := client.NewReadinessCoordinator("web-1")
	readiness.Check(client.CheckConnected, func() bool { return connected })

	readiness.Set(client.Ready, "listening")
	fmt.Println(readiness.State())
	connected = true
	fmt.Println(readiness.State())
	connected = false
	fmt.Println(readiness.State())
	// Output:
	// WARMING
	// READY
	// UNHEALTHY
}

// The process is asked to stop twice. Only the first request counts.
func ExampleNewShutdownCoordinator() {
	shutdown := client.NewShutdownCoordinator("web-1")
	for _, reason := range []string{"a new build", "impatience"} {
		r, first := shutdown.Request(client.Request{Reason: reason})
		fmt.Println(r.Reason, first)
	}
	// Output:
	// a new build true
	// a new build false
}
