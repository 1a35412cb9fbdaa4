package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/swansong-go/swansong/launcher/internal/confine"
	"github.com/swansong-go/swansong/launcher/internal/guardian"
	"github.com/swansong-go/swansong/launcher/internal/listeners"
	"github.com/swansong-go/swansong/launcher/internal/upgrade"
)

// The functions of this file are commands: a program calls one of them, instead of [Start], when it
// is run with the arguments that a field of [Config] (Guardian, Helper, UpgradeCheck) names.

// Guard is the main function of a guardian; see [Config].Guardian. It reads its orders from stdin,
// and returns when the launcher has ended and no process is left that the guardian looks after.
// While the launcher lives, it ignores SIGTERM, SIGINT and SIGHUP.
//
// While no launcher runs, the guardian writes the output of kept processes to their logs, without
// the secrets that the launcher knew.
//
// Problems are printed on stderr, and reported as an [Alarm] by the next launcher.
func Guard() error { return guardian.Guard() }

// Exec replaces the current process by the command, with the group's Rlimits, and with LISTEN_PID
// set to the process id, as sd_listen_fds(3) requires. A [Config].Helper calls Exec, because the
// launcher does not know the process id before the process exists. Exec returns only if it fails.
func Exec(args []string) error {
	if len(args) == 0 {
		return errors.New("launcher: Exec has no command; pass the program and its arguments")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("launcher: %w", err)
	}
	if err := confine.Apply(); err != nil {
		return err
	}
	if os.Getenv("LISTEN_FDS") != "" {
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	return fmt.Errorf("launcher: cannot execute %q: %w", args[0], syscall.Exec(path, args, os.Environ()))
}

// AnswerUpgradeCheck is what the command of [Config].UpgradeCheck does: it reads from r what the
// launcher would hand over, and checks whether this program could take over with cfg. If so, it
// writes that to w; if not, it returns the reason. It starts nothing, and leaves nothing open.
func AnswerUpgradeCheck(cfg Config, r io.Reader, w io.Writer) error {
	return upgrade.Answer(r, w, func(h *upgrade.Handoff) error {
		if err := cfg.Validate(); err != nil {
			return err
		}
		dir, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return fmt.Errorf("launcher: %w", err)
		}
		if dir != h.Dir {
			return &ConfigError{Field: "Dir", Rule: fmt.Sprintf("cannot change from %s by an upgrade; start another launcher", h.Dir)}
		}
		if _, err := cfg.readSecretFiles(); err != nil {
			return err
		}
		if _, err := handedGroups(h); err != nil {
			return err
		}
		groups := cfg.resolve().Groups
		for _, g := range groups {
			g.Limits.IfUnavailable = Warn // limits cannot be checked here: this program is in another cgroup than the launcher
			if err := errors.Join(cfg.checkFiles(g), checkLog(g)); err != nil {
				return err
			}
		}
		group, err := listeners.Try(groups, h.State)
		if err != nil {
			return &ConfigError{group, "Listen", err.Error()}
		}
		return nil
	})
}
