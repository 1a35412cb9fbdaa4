//go:build unix

package proc

import "syscall"

// credential returns the credential of u. For a nil u it returns nil: the process then runs as the
// user of this program.
func (u *User) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}
