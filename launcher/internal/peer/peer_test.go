//go:build unix

package peer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/swansong-go/swansong/launcher/internal/peer"
	"go.uber.org/goleak"
)

// asRole is the environment variable that makes the test binary act as a process of another user.
const asRole = "PEER_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(asRole) {
	case "connect":
		os.Exit(connect(os.Args[1]))
	case "listen":
		os.Exit(listen(os.Args[1]))
	}
	goleak.VerifyTestMain(m)
}

// connect connects to a socket and prints what the server sends. A server that refuses the client
// sends nothing.
func connect(path string) int {
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println(err)
		return 0
	}
	text, err := io.ReadAll(conn)
	fmt.Printf("%q %v\n", text, err)
	return 0
}

// listen listens where a client expects the socket of its own user.
func listen(path string) int {
	ln, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	fmt.Println("listening", err)
	for err == nil {
		_, err = ln.Accept()
	}
	return 0
}

// nobody is the uid of a user who is neither root nor the user of the test.
const nobody = 65534

// openDirectory returns a directory that all users can write to, and a copy of the test binary that
// all users can run.
func openDirectory(t *testing.T) (dir, program string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes of another user")
	}
	dir, err := os.MkdirTemp("", "swp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "program")
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir, program
}

func asNobody(program, role, path string) *exec.Cmd {
	cmd := exec.Command(program, path)
	cmd.Env = []string{asRole + "=" + role}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// The tests below check that other users are refused. They need root, to start processes of another
// user.
func TestTrusted_AcceptsOnlySameUserAndRoot(t *testing.T) {
	self := os.Geteuid()
	for uid, want := range map[int]bool{self: true, 0: true, self + 1: false, -1: false} {
		if got := peer.Trusted(uid); got != want {
			t.Errorf("uid %d, as %d: trusted is %v", uid, self, got)
		}
	}
}

// A client of another user is refused before anything is sent, even if the directory and the socket
// are open to all users.
func TestCredentials_RefuseClientOfOtherUser(t *testing.T) {
	dir, program := openDirectory(t)
	path := filepath.Join(dir, "s")
	ln, err := peer.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	out, err := asNobody(program, "connect", path).Output()
	if err != nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("the socket with mode 0600: %s, %v", out, err)
	}

	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	refusals := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			refusals <- err
			return
		}
		defer conn.Close()
		trusted, _, err := peer.Credentials().ServerHandshake(conn)
		if err == nil {
			io.WriteString(trusted, "a secret")
		}
		refusals <- err
	}()
	out, err = asNobody(program, "connect", path).Output()
	if err != nil || string(out) != "\"\" <nil>\n" {
		t.Errorf("another user receives %s, %v", out, err)
	}
	refused(t, <-refusals)
}

// listenAsNobody starts a process of another user that listens at the path until the end of the
// test.
func listenAsNobody(t *testing.T, program, path string) {
	t.Helper()
	cmd := asNobody(program, "listen", path)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	said := make([]byte, 64)
	if n, err := stdout.Read(said); err != nil || !strings.HasPrefix(string(said[:n]), "listening <nil>") {
		t.Fatalf("%s, %v", said[:n], err)
	}
}

// A client refuses a socket that another user has put in place of the expected one.
func TestCredentials_RefuseServerOfOtherUser(t *testing.T) {
	dir, program := openDirectory(t)
	path := filepath.Join(dir, "s")
	listenAsNobody(t, program, path)
	conn, err := net.DialTimeout("unix", path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _, err = peer.Credentials().ClientHandshake(context.Background(), "", conn)
	refused(t, err)
}

// A client that runs as root accepts a server of the owner of the directory, and of no other user.
func TestCredentialsIn_RootAcceptsServerOfDirectoryOwner(t *testing.T) {
	dir, program := openDirectory(t)
	theirs := filepath.Join(dir, "theirs")
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(theirs, "s")
	listenAsNobody(t, program, path)
	ask := func() error {
		conn, err := net.DialTimeout("unix", path, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _, err = peer.CredentialsIn(theirs).ClientHandshake(context.Background(), "", conn)
		return err
	}
	if err := ask(); err != nil {
		t.Errorf("the owner: %v", err)
	}
	for what, change := range map[string]func() error{
		"whose directory belongs to a third user": func() error { return os.Chown(theirs, nobody-1, nobody) },
		"whose directory others can write to":     func() error { return errors.Join(os.Chown(theirs, nobody, nobody), os.Chmod(theirs, 0o777)) },
	} {
		if err := errors.Join(os.Chmod(theirs, 0o700), change()); err != nil {
			t.Fatal(err)
		}
		err := ask()
		if !errors.Is(err, peer.ErrForeign) {
			t.Errorf("a server %s: %v", what, err)
		}
	}
}

func refused(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, peer.ErrForeign) || !strings.Contains(err.Error(), fmt.Sprintf("uid %d", nobody)) {
		t.Errorf("%v, want ErrForeign with the uid", err)
	}
}

// The kernel tells the credentials of the other end only for unix sockets.
func TestCredentials_RefuseTCPConnections(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := peer.Credentials().ClientHandshake(context.Background(), "", conn); err == nil || !strings.Contains(err.Error(), "only unix sockets") {
		t.Errorf("over TCP: %v", err)
	}
}

// Listen replaces a socket at its path, but neither another file nor a symbolic link.
func TestListen_ReplacesOnlySockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "swp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	old, err := net.Listen("unix", filepath.Join(dir, "old"))
	if err != nil {
		t.Fatal(err)
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close()
	ln, err := peer.Listen(filepath.Join(dir, "old"))
	if err != nil {
		t.Fatalf("Listen at the path of a stale socket: %v", err)
	}
	defer ln.Close()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "old"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"precious", "link", strings.Repeat("x", 200), "no/directory"} {
		if ln, err := peer.Listen(filepath.Join(dir, name)); err == nil {
			ln.Close()
			t.Errorf("Listen succeeded at %s", name)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "text" {
		t.Errorf("the regular file at the path: %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "old")); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
}

func isForeign(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, peer.ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
}

// DialOwned connects to a socket of the user, and to no other file, not even by a symbolic link.
func TestDialOwned_ConnectsOnlyToSocketOfUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "swp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, link := filepath.Join(dir, "s"), filepath.Join(dir, "link")
	ln, err := peer.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	conn, err := peer.DialOwned(t.Context(), path, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	_, err = peer.DialOwned(t.Context(), path, os.Geteuid()+1)
	isForeign(t, err)
	_, err = peer.DialOwned(t.Context(), link, os.Geteuid())
	isForeign(t, err)
	_, err = peer.DialOwned(t.Context(), dir, os.Geteuid())
	isForeign(t, err)
}

// CredentialsOf accepts one user and not even root, since root's socket is not that of the process.
func TestCredentialsOf_RefusesAllOtherUsers(t *testing.T) {
	dir, err := os.MkdirTemp("", "swp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := peer.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := peer.CredentialsOf(os.Geteuid()).ClientHandshake(t.Context(), "", conn); err != nil {
		t.Errorf("the same user: %v", err)
	}
	_, _, err = peer.CredentialsOf(nobody).ClientHandshake(t.Context(), "", conn)
	isForeign(t, err)
}
