package launcher_test

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"github.com/swansong-go/swansong/launcher/client"
)

func init() {
	// This process tries to use sockets that are not its own, prints what it could do, and puts a
	// symbolic link in the place of its own socket.
	roles["trespasser"] = func(args []string) {
		dir := os.Getenv("SWANSONG_DIR")
		users := dir + ".users"
		for _, path := range []string{launcher.SocketIn(dir), dir + "/victim-1.sock", dir + "/victim-1.note", users + "/0.sock"} {
			for _, network := range []string{"unix", "unixgram"} {
				if conn, err := net.Dial(network, path); err == nil {
					fmt.Println("has connected to", conn.RemoteAddr())
				}
			}
		}
		for _, path := range []string{os.Getenv("NOTIFY_SOCKET"), os.Getenv(client.EnvLauncher)} {
			if os.Remove(path) == nil || os.Rename(path, path+"2") == nil {
				fmt.Println("has removed", path)
			}
		}
		if err := os.Symlink(args[0], os.Getenv(client.EnvAddress)); err != nil {
			fmt.Println(err)
		}
		fmt.Println("done")
		roles["impostor"](nil)
		forever()
	}
}

// asNobody returns the group with processes that run as the user nobody. It returns false if this
// program cannot start such processes, and then checks that the launcher says so.
func asNobody(t *testing.T, g launcher.GroupConfig) (launcher.GroupConfig, bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		TestUser_RunsProcessAsUser(t)
		return g, false
	}
	// Copy the test binary, because the user nobody cannot enter its directory.
	dir := shortDir(t)
	program := filepath.Join(dir, "test")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Link(os.Args[0], program) != nil {
		text, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(program, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if g.Command[0] == os.Args[0] {
		g.Command[0] = program
	}
	g.User = "nobody"
	return g, true
}

// A process of another user speaks with its launcher by the SDK and by sd_notify messages.
// When the launcher has ended, nothing is left of the sockets.
func TestUser_ProcessOfOtherUserCanUseSocketsOfLauncher(t *testing.T) {
	sdk, ok := asNobody(t, runners("sdk", 2))
	if !ok {
		return
	}
	notify, _ := asNobody(t, bash(t, `trap 'systemd-notify --stopping; exit 0' TERM`, `systemd-notify --ready --status="open"`, `while :; do sleep 0.1; done`))
	notify.Protocol = launcher.Notify
	h := launch(t, sdk, notify, runners("own", 1)).ready()
	h.waitForAnswer("sdk-1")
	h.waitForAnswer("own-1")
	h.waitForStatus("main-1", "its status", func(st launcher.Status) bool { return st.Message == "open" })
	for _, id := range []string{"sdk-1", "sdk-2", "main-1"} {
		testkit.Equal(t, "outcome of "+id, h.stopAndWait(id).Outcome, launcher.Clean)
	}
	users := h.dir + ".users"
	if err := h.Shutdown().Wait(soon(t)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(users); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", users, err)
	}
}

// The process that an earlier launcher has started as another user answers the next launcher.
func TestUser_ProcessOfOtherUserAnswersNextLauncher(t *testing.T) {
	g, ok := asNobody(t, runners("web", 1))
	if !ok {
		return
	}
	cfg, _ := orphans(t, kept(g))
	h := launchWith(t, cfg).ready()
	h.waitForAnswer("web-1")
}

// A process of another user cannot use the sockets of others, nor replace those of the launcher,
// nor speak for another process, nor make the launcher connect to a socket that only root may use.
func TestUser_ProcessCannotUseSocketsOfOtherUsers(t *testing.T) {
	private := filepath.Join(shortDir(t), "private")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: private, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	g, ok := asNobody(t, group("impostor", 1, "trespasser", private))
	if !ok {
		return
	}
	g.LivenessInterval, g.LivenessFailures, g.Restart.Policy, g.Protocol = 10*time.Millisecond, 1, launcher.Never, ""
	g.Shutdown.Grace, g.Shutdown.Max = time.Hour, time.Hour
	h := launch(t, runners("victim", 1, "--ready-after", "-1s"), g)
	h.waitForState("impostor-1", launcher.Ready) // so the launcher has accepted the message of impostor-1 that it is ready
	// The first check may still get the error of an earlier attempt to connect, when the process
	// did not listen yet.
	h.waitForState("impostor-1", launcher.Unhealthy)
	h.waitForStatus("impostor-1", "the launcher refuses its socket", func(st launcher.Status) bool {
		return strings.Contains(st.Message, "is not a socket of the user")
	})
	lines, more, stop, err := h.Printed("impostor-1", 100)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var said []string
	for _, l := range lines {
		said = append(said, l.Text)
	}
	for len(said) < 3 {
		select {
		case l := <-more:
			said = append(said, l.Text)
		case <-soon(t).Done():
			t.Fatalf("it has only said %q\n%s", said, h.story())
		}
	}
	testkit.Equal(t, "what it could do", said, []string{"done", "PermissionDenied", "OK"})
	testkit.Equal(t, "the victim is ready", stateOf(h, "victim-1") >= launcher.Ready, false)
	ln.SetDeadline(time.Now())
	if conn, err := ln.Accept(); err == nil {
		conn.Close()
		t.Error("the launcher has connected to a socket that the process has no access to")
	}
	for path, want := range map[string]fs.FileMode{"": 0o711, "/65534": 0o700, "/65534.sock": 0o600, "/impostor-1.note": 0o600} {
		info, err := os.Lstat(h.dir + ".users" + path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v; want the mode %v", path, info, err, want)
		}
	}
	for _, id := range []string{"victim-1", "impostor-1"} {
		st, _ := h.Process(id)
		kill(t, st.PID)
	}
}
