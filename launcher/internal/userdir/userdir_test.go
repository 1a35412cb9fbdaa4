//go:build unix

package userdir_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher/internal/userdir"
)

// another is not the user of this test: it owns none of the directories here, nor does its group.
var another = &proc.User{UID: 54321, GID: 54321}

// The directory of a user is made only if the user can reach it and no third user can replace it.
func TestCheck_RefusesUnsafeParents(t *testing.T) {
	dir, err := os.MkdirTemp("", "users")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	parent := filepath.Join(dir, "parent")
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what         string
		outer, inner os.FileMode
		want         string
	}{
		{"all can enter", 0o755, 0o711, ""},
		{"the user cannot enter", 0o755, 0o700, "no permission to enter " + parent},
		{"the user cannot enter what is further up", 0o750, 0o755, "no permission to enter " + dir},
		{"all can write", 0o755, 0o777, "can write to " + parent + ";"},
		{"all can write further up", 0o757, 0o755, "can write to " + dir + ";"},
		{"all can write, but not rename", 0o755, 0o777 | os.ModeSticky, ""},
	} {
		if err := os.Chmod(dir, c.outer); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(parent, c.inner); err != nil {
			t.Fatal(err)
		}
		err := userdir.Check(filepath.Join(parent, "launcher"), another)
		if text := testkit.ErrorText(err); c.want == "" && err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	good, link := filepath.Join(dir, "good"), filepath.Join(parent, "link")
	for _, err := range []error{os.Chmod(dir, 0o755), os.Chmod(parent, 0o777), os.Mkdir(good, 0o755), os.Symlink(good, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	err = userdir.Check(filepath.Join(link, "launcher"), another)
	if text := testkit.ErrorText(err); !strings.Contains(text, "can write to "+parent+";") {
		t.Errorf("all can replace a symbolic link: %v", err)
	}
	err = userdir.Check(filepath.Join(dir, "missing", "launcher"), another)
	if text := testkit.ErrorText(err); !strings.Contains(text, "missing does not exist") {
		t.Errorf("without a parent: %v", err)
	}
}

// Make does not use a symbolic link to a directory as the directory. RemoveFilesOf and Remove
// follow no symbolic link, so they remove nothing elsewhere.
func TestMake_RefusesSymbolicLink(t *testing.T) {
	dir, err := os.MkdirTemp("", "users")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	elsewhere := t.TempDir()
	file := filepath.Join(elsewhere, "web-1.sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	launcher := filepath.Join(dir, "launcher")
	own := &proc.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if err := os.Symlink(elsewhere, userdir.Of(launcher)); err != nil {
		t.Fatal(err)
	}
	if err := userdir.Make(launcher, own); !strings.Contains(testkit.ErrorText(err), "is not a directory of the launcher's user") {
		t.Errorf("Make: %v", err)
	}
	if err := os.Remove(userdir.Of(launcher)); err != nil {
		t.Fatal(err)
	}
	if err := userdir.Make(launcher, own); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(userdir.In(launcher, own.UID), "link")); err != nil {
		t.Fatal(err)
	}
	used := filepath.Join(userdir.In(launcher, own.UID), "web-1.sock")
	listen(t, used)
	userdir.RemoveFilesOf(launcher, "web-1", []string{"sock"})
	if _, err := os.Lstat(used); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", used, err)
	}
	userdir.Remove(launcher)
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("a file in another directory has been removed: %v", err)
	}
}

// listen creates a socket at the path, and leaves it there as a killed process does.
func listen(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
}

// Remove removes what launchers make, and nothing else. Another program can have made a directory
// of this name: Make does not use it, and Remove removes nothing in it.
func TestRemove_LeavesFilesOfOthers(t *testing.T) {
	dir, err := os.MkdirTemp("", "users")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	launcher := filepath.Join(dir, "launcher")
	own := &proc.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if err := userdir.Make(launcher, own); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(userdir.In(launcher, own.UID), "web-2.sock")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	userdir.RemoveFilesOf(launcher, "web-2", []string{"sock"})
	if err := os.Remove(theirs); err != nil {
		t.Errorf("a file of the user that is not a socket: %v", err)
	}
	listen(t, userdir.SocketFor(launcher, own.UID))
	listen(t, filepath.Join(userdir.In(launcher, own.UID), "web-1.sock"))
	userdir.Remove(launcher)
	if _, err := os.Lstat(userdir.Of(launcher)); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", userdir.Of(launcher), err)
	}

	file := filepath.Join(userdir.Of(launcher), "photos", "web-1.sock")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	socket, note := filepath.Join(userdir.Of(launcher), "1000.sock"), filepath.Join(userdir.Of(launcher), "web-1.note")
	listen(t, socket)
	listen(t, note)
	if err := userdir.Make(launcher, own); !strings.Contains(testkit.ErrorText(err), "contains photos, which no launcher has made") {
		t.Errorf("Make: %v", err)
	}
	userdir.RemoveFilesOf(launcher, "web-1", []string{"sock", "note"})
	userdir.Remove(launcher)
	for _, path := range []string{file, socket, note} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("in a directory that no launcher has made: %v", err)
		}
	}

	// Remove does not remove a socket either if its name is none that a launcher uses.
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(userdir.Of(launcher), "control.sock")
	listen(t, control)
	userdir.Remove(launcher)
	if _, err := os.Lstat(control); err != nil {
		t.Errorf("a socket of another program: %v", err)
	}
}
