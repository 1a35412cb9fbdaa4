package httpdrain_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
)

func goexit() { runtime.Goexit() }

func sortCuts(cuts []httpdrain.Cut) {
	slices.SortFunc(cuts, func(a, b httpdrain.Cut) int { return cmp.Compare(a.Route, b.Route) })
}

const exitVar = "HTTPDRAIN_TEST_EXIT"

// serveAndExit is the main function of a process whose handler calls os.Exit.
func serveAndExit() {
	s := ctxshutdown.New(context.Background())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			panic(err)
		}
		io.WriteString(conn, get)
	}()
	fmt.Println(httpdrain.Serve(s, handler(func(http.ResponseWriter, *http.Request) {
		s.Shutdown()
		os.Exit(7)
	}), ln))
}

// isRefused reports whether err says that the client could not connect. Such a client has sent no
// request.
func isRefused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
