//go:build unix

package proc

import "syscall"

// credential returns the credential of a user, nil for the user of this program.
func (u *User) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}
