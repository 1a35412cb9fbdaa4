//go:build unix

package transport_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/transport"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A call has run out of time. If the process does not listen, UnavailableIfUnserved replaces the
// error, because the time-out does not show that the process serves the lifecycle protocol.
func TestUnavailableIfUnserved_TimeoutMeansUnavailableUnlessSocketIsServed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c := transport.New(transport.Config{Process: "web-1", Poll: time.Minute})
	c.SetSocket(socket, -1)
	defer c.Close()
	late := status.FromContextError(context.DeadlineExceeded).Err()
	testkit.Equal(t, "without a listener", status.Code(c.UnavailableIfUnserved(late)), codes.Unavailable)
	testkit.Equal(t, "no error", c.UnavailableIfUnserved(nil), nil)
	unknown := status.Error(codes.Unimplemented, "unknown service")
	testkit.Equal(t, "another error", status.Code(c.UnavailableIfUnserved(unknown)), codes.Unimplemented)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	testkit.Equal(t, "with a listener", status.Code(c.UnavailableIfUnserved(late)), codes.DeadlineExceeded)
}
