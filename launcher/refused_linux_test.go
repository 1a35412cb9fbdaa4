package launcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/launcher"
	"golang.org/x/sys/unix"
)

func init() {
	// This role is a launcher that must not take over open files of other processes. It gets its
	// configuration as an argument, and prints its result.
	roles["confined launcher"] = func(args []string) {
		var cfg launcher.Config
		if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
			panic(err)
		}
		switch err := refuse(unix.SYS_PIDFD_GETFD); err {
		case nil:
		case unix.ENOSYS, unix.EINVAL: // the kernel does not support seccomp filters
			fmt.Println("not confined:", err)
			return
		default:
			panic(err)
		}
		_, err := launcher.Start(context.Background(), cfg)
		fmt.Println(err)
	}
}

// refuse makes the kernel return EPERM for a system call of this process from now on. The seccomp
// profile of a container commonly refuses system calls in this way. So does the security module
// Yama if its setting ptrace_scope is not 0.
func refuse(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // loads the number of the system call into the accumulator
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// A launcher has no permission to take over the listeners of the earlier launcher. Its error says
// why and what to do, and it changes nothing: clients are served, and a launcher that has the
// permission adopts the same processes.
func TestLauncherDeath_LauncherWithoutPermissionDoesNotTakeOverListeners(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Name: "http", Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").checkLine("ready")
	before := b.alive()
	first.kill()
	text, err := json.Marshal(struct {
		Dir      string
		Groups   []launcher.GroupConfig
		Guardian []string
	}{cfg.Dir, cfg.Groups, cfg.Guardian})
	if err != nil {
		t.Fatal(err)
	}
	confined := exec.CommandContext(soon(t), os.Args[0], string(text))
	confined.Env = append(os.Environ(), asRole+"=confined launcher", "GORACE=atexit_sleep_ms=0")
	out, err := confined.Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(string(out), "not confined") {
		t.Skip(string(out))
	}
	for _, part := range []string{`launcher: group "web": Listen: listen tcp ` + g.Listen[0].Address + ": bind: address already in use; a process that an earlier launcher left running listens there",
		"(pidfd_getfd: operation not permitted)", "CAP_SYS_PTRACE", "kernel.yama.ptrace_scope=0"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("output is %s, want %q", out, part)
		}
	}
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+g.Listen[0].Address); err != nil {
		t.Errorf("client after the refusal: %v", err)
	}
	h := launchWith(t, cfg).ready()
	testkit.Equal(t, "pids", pidsOf(h, "web"), before)
}
