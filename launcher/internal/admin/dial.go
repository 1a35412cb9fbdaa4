package admin

import (
	"fmt"

	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	"github.com/swansong-go/swansong/launcher/internal/statefile"
	"github.com/swansong-go/swansong/launcher/internal/transport"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Dial returns a client of the launcher whose state directory is dir; see launcher.Dial.
func Dial(dir string) (pb.LauncherAdminInterfaceClient, *grpc.ClientConn, error) {
	return newClient("unix:"+statefile.SocketIn(dir), peer.CredentialsIn(dir))
}

// DialTLS returns a client of a launcher over TCP, at host:port; see launcher.DialTLS. It reads the
// files, so that a missing one is an error here and not at the first call.
//
// The scheme passthrough keeps package grpc from resolving the host, and no proxy of the
// environment is used. So the connection goes to exactly the host that the user has named, and the
// certificate has to be valid for it.
func DialTLS(address string, files mtls.Files) (pb.LauncherAdminInterfaceClient, *grpc.ClientConn, error) {
	if _, _, err := transport.SplitAddress(address); err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	id, err := mtls.Load(files, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	return newClient("passthrough:///"+address, id.Credentials(), grpc.WithNoProxy())
}

// newClient returns a client that connects at its first call, so an error of newClient says nothing
// about whether a launcher runs.
func newClient(target string, creds credentials.TransportCredentials, opts ...grpc.DialOption) (pb.LauncherAdminInterfaceClient, *grpc.ClientConn, error) {
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	return pb.NewLauncherAdminInterfaceClient(conn), conn, nil
}
