// Package userdir makes the directory for the sockets of processes that run as another user than
// their launcher. They cannot enter the launcher's own directory.
//
//	/run/swansong            0700  the launcher's own directory
//	/run/swansong.users      0711  belongs to the launcher's user, as the one above
//	├── 33                   0700  belongs to the user with the uid 33: its processes make their sockets here
//	├── 33.sock              0600  belongs to that user, too: for the notifications of its processes
//	└── web-1.note           0600  the same, for sd_notify(3) messages of one process
//
// A third user can use none of these. The user with the uid 33 can replace what is in the directory
// 33, and nothing else. Therefore the launcher makes and opens nothing there, and connects only to
// a socket of that user; see peer.DialOwned.
package userdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/peer"
)

// Of returns the path of the directory for sockets of other users, beside the directory of the
// launcher.
func Of(launcherDir string) string { return launcherDir + ".users" }

// In returns the path of the directory in which processes of the user with this uid make their
// sockets.
func In(launcherDir string, uid uint32) string { return filepath.Join(Of(launcherDir), name(uid)) }

// SocketFor returns the path of the launcher's socket for notifications of this user's processes.
func SocketFor(launcherDir string, uid uint32) string { return In(launcherDir, uid) + ".sock" }

func name(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) }

// Check returns an error if processes of the user could not reach the directory, or if a third user
// could replace it. It makes nothing.
func Check(launcherDir string, as *proc.User) error {
	abs, err := filepath.Abs(launcherDir)
	if err != nil {
		return err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist; the sockets of processes that run as another user are made there, beside the launcher's own directory; make it, with mode 0755", filepath.Dir(abs))
	} else if err != nil {
		return err
	}
	// A symbolic link can be changed by the users who can write to its directory, so the path that
	// has the links is checked, too.
	if err := checkPath(filepath.Dir(abs), parent, as); err != nil {
		return err
	}
	return checkPath(parent, parent, as)
}

const instead = "choose another directory for the launcher, such as /run/swansong"

// checkPath returns an error if the user cannot enter one of the directories on path, or if a third
// user could replace one of them. The error names parent, the directory to which path leads.
func checkPath(path, parent string, as *proc.User) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		switch owner := peer.OwnerOf(info); {
		case owner != 0 && peer.OfAnother(info), info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
			return fmt.Errorf("the sockets of processes that run as another user need a directory in %s, but a third user could replace that directory, because the third user can write to %s; %s", parent, dir, instead)
		case !canEnter(as, info, owner):
			return fmt.Errorf("the sockets of processes with the uid %d need a directory in %s, but these processes have no permission to enter %s; %s", as.UID, parent, dir, instead)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// canEnter reports whether the mode of a directory with this owner lets the user enter it.
func canEnter(as *proc.User, info fs.FileInfo, owner int) bool {
	var need fs.FileMode = 0o001
	group := peer.GroupOf(info)
	switch {
	case owner == int(as.UID):
		need = 0o100
	case group == int(as.GID) || slices.ContainsFunc(as.Groups, func(g uint32) bool { return int(g) == group }):
		need = 0o010
	}
	return info.Mode()&need != 0
}

// Make makes the directory, and in it that of the user, as far as they are missing.
func Make(launcherDir string, as *proc.User) error {
	if err := Check(launcherDir, as); err != nil {
		return err
	}
	top, own := Of(launcherDir), In(launcherDir, as.UID)
	if err := mkdir(top, 0o711); err != nil {
		return err
	}
	// The modes are set again, because those of new directories depend on the umask, and systemd
	// sets the mode of a RuntimeDirectory at each start.
	if err := os.Chmod(top, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(own, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// if it existed, the launcher's user has made it: no other user may write to the parent
	return Give(own, as)
}

// mkdir makes a directory. It also accepts one that exists, if that belongs to the launcher's user
// and contains nothing but what launchers make.
func mkdir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || peer.OfAnother(info) {
		return fmt.Errorf("%s is not a directory of the launcher's user; remove it, or choose another directory for the launcher", path)
	}
	entries, err := os.ReadDir(path)
	if name := foreign(entries); name != "" {
		return fmt.Errorf("%s contains %s, which no launcher has made; choose another directory for the launcher", path, name)
	}
	return err
}

func isUID(name string) bool {
	_, err := strconv.ParseUint(name, 10, 32)
	return err == nil
}

// isOurs reports whether a launcher makes something of this name and type in the directory.
func isOurs(e fs.DirEntry) bool {
	if e.IsDir() {
		return isUID(e.Name())
	}
	uid, isSocket := strings.CutSuffix(e.Name(), ".sock")
	return e.Type()&fs.ModeSocket != 0 && (isSocket && isUID(uid) || strings.HasSuffix(e.Name(), ".note"))
}

// foreign returns the name of something that no launcher makes in the directory, empty if there is
// none.
func foreign(entries []fs.DirEntry) string {
	for _, e := range entries {
		if !isOurs(e) {
			return e.Name()
		}
	}
	return ""
}

// Give makes the user the owner of a file. The file must not be in a directory of the user, because
// the user could replace it.
func Give(path string, as *proc.User) error { return os.Lchown(path, int(as.UID), int(as.GID)) }

// RemoveFilesOf removes the sockets of a process that has ended. Their names are the id and one of
// the suffixes.
func RemoveFilesOf(launcherDir, id string, suffixes []string) {
	root, entries := open(launcherDir)
	if root == nil {
		return
	}
	defer root.Close()
	for _, suffix := range suffixes {
		removeSocket(root, id+"."+suffix)
		for _, e := range entries {
			if e.IsDir() {
				removeSocket(root, filepath.Join(e.Name(), id+"."+suffix))
			}
		}
	}
}

func removeSocket(root *os.Root, path string) {
	if info, err := root.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		root.Remove(path)
	}
}

// Remove removes the directory of a launcher that has ended: its sockets, and the directories in
// which then nothing is left. All other files stay, because a launcher calls Remove even if it has
// not made the directory, and another program may have made one of that name.
func Remove(launcherDir string) {
	root, entries := open(launcherDir)
	if root == nil {
		return
	}
	defer root.Close()
	for _, e := range entries {
		if e.IsDir() {
			theirs, _ := fs.ReadDir(root.FS(), e.Name())
			for _, s := range theirs {
				removeSocket(root, filepath.Join(e.Name(), s.Name()))
			}
		}
		root.Remove(e.Name())
	}
	// This call fails if systemd has made the directory. Systemd then removes it.
	os.Remove(Of(launcherDir))
}

// open opens the directory, so that no symbolic link in it leads elsewhere, and returns what is in
// it. It returns nil if there is none, if it does not belong to the launcher's user, or if
// something is in it that no launcher makes: Make does not use such a directory either.
func open(launcherDir string) (*os.Root, []fs.DirEntry) {
	root, err := os.OpenRoot(Of(launcherDir))
	if err != nil {
		return nil, nil
	}
	info, err := root.Stat(".")
	entries, failed := fs.ReadDir(root.FS(), ".")
	if err != nil || failed != nil || peer.OfAnother(info) || foreign(entries) != "" {
		root.Close()
		return nil, nil
	}
	return root, entries
}
