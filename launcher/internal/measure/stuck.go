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

// stuckEnv is the variable with the path of a FIFO that a process opens when it is stuck.
const stuckEnv = "LAUNCHER_MEASURE_STUCK"

// stuckProcess is the main function of a subprocess that becomes READY, and then gets stuck. It
// ignores SIGTERM.
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
			reportStuck()
		}()
	case inStdout:
		go printForEver()
	}
	srv := grpc.NewServer()
	pb.RegisterProcessLifecycleInterfaceServer(srv, stuck{})
	return srv.Serve(ln)
}

// stuck serves the protocol, but never answers the call Shutdown.
type stuck struct {
	pb.UnimplementedProcessLifecycleInterfaceServer
}

func (stuck) GetReadinessStatus(context.Context, *pb.ReadinessRequest) (*pb.ReadinessResponse, error) {
	return &pb.ReadinessResponse{State: pb.ReadinessResponse_READY}, nil
}

func (stuck) Shutdown(context.Context, *pb.ShutdownRequest) (*pb.ShutdownAck, error) { select {} }

// A blackHole is a listener. Once the field open is set, the kernel still takes connections and
// data, but nothing is read or answered.
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

// printForEver prints without end, and reports when the pipe is full.
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
	reportStuck()
	if err := syscall.SetNonblock(1, false); err != nil {
		fatal(err)
	}
	for {
		syscall.Write(1, line)
	}
}

func reportStuck() {
	f, err := os.OpenFile(os.Getenv(stuckEnv), os.O_WRONLY, 0)
	if err != nil {
		fatal(fmt.Errorf("cannot report that the process is stuck: %w", err))
	}
	f.Close()
}
