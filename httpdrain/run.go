package httpdrain

import (
	"context"
	"net/http"
	"time"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/graceful"
)

// headerTime is the time that a client of Run has to send the header of a request.
const headerTime = 10 * time.Second

// Run serves h on the TCP address addr until the process gets a signal, and returns when every
// request is answered. It is for programs that consist of one server: it combines [graceful.Run],
// [graceful.Listen], [graceful.Ready] and [Serve], with a ReadHeaderTimeout of ten seconds. Programs
// with more than that, such as probes or another server, call these functions instead.
//
// The result is that of graceful.Run, for [graceful.ExitCode]. If h is nil, it is
// [http.DefaultServeMux].
//
//	err := httpdrain.Run(context.Background(), ":8080", mux)
//	if err != nil {
//		log.Print(err)
//	}
//	os.Exit(graceful.ExitCode(err))
func Run(ctx context.Context, addr string, h http.Handler, opts ...graceful.Option) error {
	return graceful.Run(ctx, func(s *ctxshutdown.Swansong) error {
		ln, err := graceful.Listen("tcp", addr)
		if err != nil {
			return err
		}
		graceful.Ready(s)
		return Serve(s, &http.Server{Handler: h, ReadHeaderTimeout: headerTime}, ln)
	}, opts...)
}
