//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/swansong-go/swansong/launcher/client"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// told is the path of a FIFO that a stuck process opens, once that is what it is.
const told = "LAUNCHER_MEASURE_TOLD"

// stuckProcess is a subprocess that says it is READY, then gets stuck as kind says, and is deaf to SIGTERM.
func stuckProcess(kind string) error {
	signal.Ignore(syscall.SIGTERM)
	ln, err := net.Listen("unix", os.Getenv(client.EnvAddress))
	if err != nil {
		return err
	}
	switch kind {
	case inSocket:
		usr1 := make(chan os.Signal, 1)
		signal.Notify(usr1, syscall.SIGUSR1)
		hole := &blackHole{Listener: ln}
		ln = hole
		go func() {
			<-usr1
			hole.open.Store(true)
			tell()
		}()
	case inStdout:
		go printForEver()
	}
	srv := grpc.NewServer()
	pb.RegisterProcessLifecycleInterfaceServer(srv, stuck{})
	return srv.Serve(ln)
}

// stuck serves the protocol up to the call Shutdown, which it does not answer.
type stuck struct {
	pb.UnimplementedProcessLifecycleInterfaceServer
}

func (stuck) GetReadinessStatus(context.Context, *pb.ReadinessRequest) (*pb.ReadinessResponse, error) {
	return &pb.ReadinessResponse{State: pb.ReadinessResponse_READY}, nil
}

func (stuck) Shutdown(context.Context, *pb.ShutdownRequest) (*pb.ShutdownAck, error) { select {} }

// A blackHole is a listener that, once open, takes whatever is sent, and says nothing any more.
type blackHole struct {
	net.Listener
	open atomic.Bool
}

func (h *blackHole) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	h.swallow()
	return inBlackHole{conn, h}, err
}

func (h *blackHole) swallow() {
	if h.open.Load() {
		select {}
	}
}

type inBlackHole struct {
	net.Conn
	hole *blackHole
}

func (c inBlackHole) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.hole.swallow()
	return n, err
}

func (c inBlackHole) Write(p []byte) (int, error) {
	c.hole.swallow()
	return c.Conn.Write(p)
}

// printForEver tells when the pipe has been full, and goes on.
func printForEver() {
	line := append(bytes.Repeat([]byte("x"), 1000), '\n')
	if err := syscall.SetNonblock(1, true); err != nil {
		fatal(err)
	}
	for {
		if _, err := syscall.Write(1, line); err == syscall.EAGAIN {
			break
		}
	}
	tell()
	if err := syscall.SetNonblock(1, false); err != nil {
		fatal(err)
	}
	for {
		syscall.Write(1, line)
	}
}

func tell() {
	f, err := os.OpenFile(os.Getenv(told), os.O_WRONLY, 0)
	if err != nil {
		fatal(fmt.Errorf("nobody wants to know that I am stuck: %w", err))
	}
	f.Close()
}
