// Package confine finds the user, the user's groups and the resource limits with which the
// processes of a group are started.
package confine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/swansong-go/swansong/internal/proc"
	"github.com/swansong-go/swansong/launcher/internal/spec"
	"github.com/swansong-go/swansong/launcher/internal/userdir"
)

// LookUp returns the user that the processes of a group run as, and the environment variables of
// that user. The user is nil if it is the launcher's own. LookUp also returns an error if this
// program may not start processes as that user. If there is an error, field is the name of the
// setting that causes it.
//
// If the configured user is the one that the launcher runs as, LookUp needs no privilege and
// returns a nil user. So an ordinary user can use a configuration file that names that user.
//
// It is called for each process that is started, and not once: users and their groups can change
// while the launcher runs. The error has no prefix, because the check of the configuration adds the
// group and the field.
func LookUp(g spec.Group) (as *proc.User, env []string, field string, err error) {
	if g.User == "" && g.UserGroup == "" {
		return nil, nil, "", nil
	}
	as = &proc.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	if g.User != "" {
		field = "User"
		if env, err = lookUpUser(g, as); err != nil {
			return nil, nil, field, err
		}
	}
	if g.UserGroup != "" {
		id, err := groupID(g.UserGroup)
		if err != nil {
			return nil, nil, "UserGroup", err
		}
		as.GID = id
	}
	switch {
	case int(as.UID) == os.Geteuid() && int(as.GID) == os.Getegid():
		// The process runs as the launcher's user and group. Return no credential: without
		// privileges, it is an error to set even the user and group that a process has already.
		return nil, env, "", nil
	case !isPrivileged():
		return nil, nil, cmp.Or(field, "UserGroup"), errors.New("only root, or a launcher with the capabilities CAP_SETUID, CAP_SETGID and CAP_KILL, can start and stop processes as another user")
	}
	return as, env, "", nil
}

// lookUpUser looks up the user of the group g. It sets the fields of runAs to the id of the user
// and the ids of the user's groups.
//
// The user is looked up by name, then by number. A number that no user of the machine has is
// allowed, because in containers often no user has a name. Then the group must be configured,
// because there is no entry of a user that says what the group is.
//
// It returns the variables HOME, USER and LOGNAME, or none for a number that no user has. The
// processes have the PATH of the launcher.
func lookUpUser(g spec.Group, runAs *proc.User) (env []string, err error) {
	u, err := user.Lookup(g.User)
	if err != nil {
		u, err = user.LookupId(g.User)
	}
	if err != nil {
		id, failed := strconv.ParseUint(g.User, 10, 32)
		switch {
		case failed != nil:
			return nil, fmt.Errorf("there is no user %q on this machine", g.User)
		case g.UserGroup == "":
			return nil, fmt.Errorf("the user %s has no name on this machine, so its group is not known; name a group, too", g.User)
		}
		runAs.UID = uint32(id)
		return nil, nil
	}
	uid, failed := strconv.ParseUint(u.Uid, 10, 32)
	gid, failedGroup := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(failed, failedGroup); err != nil {
		return nil, fmt.Errorf("a process cannot run as another user on this system: %w", err)
	}
	runAs.UID, runAs.GID = uint32(uid), uint32(gid)
	others, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("the groups of the user %q are not known: %w", g.User, err)
	}
	for _, text := range others {
		// Package os/user returns ids of groups as strings, because some systems have ids that are
		// not numbers.
		if id, err := strconv.ParseUint(text, 10, 32); err == nil {
			runAs.Groups = append(runAs.Groups, uint32(id))
		}
	}
	return []string{"HOME=" + u.HomeDir, "USER=" + u.Username, "LOGNAME=" + u.Username}, nil
}

// groupID returns the id of a group that is given by its name or number. A number need not be that
// of a group on this machine: in a container, groups often have no names.
func groupID(name string) (uint32, error) {
	text := name
	if g, err := user.LookupGroup(name); err == nil {
		text = g.Gid
	}
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("there is no group %q on this machine", name)
	}
	return uint32(id), nil
}

// NeedsUserDir reports whether the processes of the group have their sockets in a separate
// directory that belongs to their user; see package userdir. They run as the user as, or as the
// launcher's user if as is nil.
func NeedsUserDir(g spec.Group, as *proc.User) bool {
	return as != nil && int(as.UID) != os.Geteuid() && g.UsesSockets()
}

// CheckUser returns an error if a launcher with this directory cannot start processes of the group
// as their user. If the directory is not known, dir is empty. If there is an error, the result
// field is the name of the setting that causes it.
func CheckUser(g spec.Group, dir string) (field string, err error) {
	as, _, field, err := LookUp(g)
	if err != nil {
		return field, err
	}
	if NeedsUserDir(g, as) {
		if os.Geteuid() != 0 {
			return "User", errors.New("to start processes as another user, run the launcher as root, or set \"protocol: signals\" and do not use {socket} in the command; only root can give a socket to another user")
		}
		if dir != "" {
			if err := userdir.Check(dir, as); err != nil {
				return "User", err
			}
		}
	}
	return "", nil
}

// Check returns an error if a launcher with this directory cannot start processes of the group as
// their user or with their limits. If there is an error, the result field is the name of the
// setting that causes it.
func Check(g spec.Group, dir string, hasHelper bool) (field string, err error) {
	if field, err := CheckUser(g, dir); err != nil {
		return field, err
	}
	if len(g.Rlimits) > 0 && !hasHelper {
		return "Rlimits", errors.New("need Config.Helper, the program that sets the limits in the process")
	}
	for _, r := range g.Rlimits {
		if err := checkRlimit(r); err != nil {
			return "Rlimits", err
		}
	}
	if g.Limits.AreSet() && g.Limits.IfUnavailable != spec.Warn {
		if err := proc.CheckLimits(Limits(g.Limits)); err != nil {
			return "Limits", fmt.Errorf("cannot be enforced: %w. With if_unavailable: warn, the processes run without them", err)
		}
	}
	return "", nil
}

// Limits converts limits of a configuration to limits of package proc.
func Limits(l spec.Limits) proc.Limits { return proc.Limits{Memory: l.Memory, CPUs: l.CPUs} }

// EnvRlimits is the environment variable with the limits that a Helper sets. A Helper is the
// program that launcher.Config.Helper names: it starts as the process, sets the limits, and then
// executes the program of the group. A value is like nofile=1024:4096,core=0:0, with the name, the
// soft and the hard limit. An unlimited one has the number RLIM_INFINITY of Linux, so that neither
// the launcher nor the Helper has to convert it.
const EnvRlimits = "SWANSONG_RLIMITS"

// Env returns the variable [EnvRlimits] with its value, and whether there are limits to set.
func Env(limits []spec.Rlimit) (variable string, ok bool) {
	var parts []string
	for _, r := range limits {
		parts = append(parts, fmt.Sprintf("%s=%d:%d", r.Name, r.Soft, r.Hard))
	}
	return EnvRlimits + "=" + strings.Join(parts, ","), len(parts) > 0
}

// Apply sets the limits in the variable [EnvRlimits], and removes the variable, so that the program
// of the group does not inherit it. The Helper calls Apply before it executes that program in its
// own process: limits that a process sets also hold for a program that it executes.
//
// The launcher could set the limits of a process from outside (prlimit), but only after the program
// has started: its first instructions would run without them. If a limit cannot be set, Apply
// returns an error, and the Helper does not execute the program.
func Apply() error {
	text := os.Getenv(EnvRlimits)
	os.Unsetenv(EnvRlimits)
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, values, _ := strings.Cut(part, "=")
		r := spec.Rlimit{Name: name}
		if _, err := fmt.Sscanf(values, "%d:%d", &r.Soft, &r.Hard); err != nil {
			return fmt.Errorf("launcher: the environment variable %s has the part %q, which is not like name=soft:hard: %w", EnvRlimits, part, err)
		}
		if err := setRlimit(r); err != nil {
			return fmt.Errorf("launcher: cannot set the limit %s: %w", part, err)
		}
	}
	return nil
}
