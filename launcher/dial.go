package launcher

import (
	"fmt"

	"github.com/swansong-go/swansong/launcher/internal/mtls"
	"github.com/swansong-go/swansong/launcher/internal/peer"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
	"google.golang.org/grpc"
)

// Dial returns a client of the launcher that has this directory. Both sides check that the other one belongs to the same
// user, or to root; root can ask the launcher of another user, whose the directory has to be. Nothing is connected before the
// first call. Close the connection when done.
func Dial(dir string) (pb.LauncherAdminInterfaceClient, *grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+SocketIn(dir), grpc.WithTransportCredentials(peer.CredentialsIn(dir)))
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	return pb.NewLauncherAdminInterfaceClient(conn), conn, nil
}

// DialTLS returns a client of a launcher's admin service over TCP, at host:port. Both sides show a certificate; that of the
// launcher has to be for this host. The files are read anew for each connection, as [TLS] has it. Nothing is connected before
// the first call, which is where a refused certificate is told. Close the connection when done.
func DialTLS(address string, files TLS) (pb.LauncherAdminInterfaceClient, *grpc.ClientConn, error) {
	if _, _, err := splitAddress(address); err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	id, err := mtls.Load(mtls.Files(files), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(id.Credentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, nil, fmt.Errorf("launcher: %w", err)
	}
	return pb.NewLauncherAdminInterfaceClient(conn), conn, nil
}
