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

	"github.com/swansong-go/swansong/launcher"
	"golang.org/x/sys/unix"
)

func init() {
	// A launcher of the configuration that it is given, which may not have what others have open. It says what becomes of it.
	roles["confined launcher"] = func(args []string) {
		var cfg launcher.Config
		if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
			panic(err)
		}
		switch err := refuse(unix.SYS_PIDFD_GETFD); err {
		case nil:
		case unix.ENOSYS, unix.EINVAL: // a kernel without filters
			fmt.Println("not confined:", err)
			return
		default:
			panic(err)
		}
		_, err := launcher.Start(context.Background(), cfg)
		fmt.Println(err)
	}
}

// refuse has the kernel answer EPERM to a system call of this process from now on. So do the profiles that containers commonly
// run with, and Yama where ptrace_scope is not 0.
func refuse(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
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

// A launcher that the kernel does not let have the listeners of its predecessor says why and what to do, and leaves all as it
// was: clients are served, and a launcher that may have them goes on with the same processes.
func TestKept_ListenersAreRefused(t *testing.T) {
	b := newBrood(t)
	g := kept(b.of(runners("web", 1)))
	g.Listen = []launcher.Listen{{Name: "http", Address: freeAddress(t)}}
	cfg := launcher.Config{Dir: shortDir(t), Guardian: guardianCommand, Groups: []launcher.GroupConfig{g}}
	first := startAnother(t, cfg, "").hears("ready")
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
	for _, part := range []string{`launcher: group "web": Listen: listen tcp ` + g.Listen[0].Address + ": bind: address already in use; a process that an earlier launcher has kept listens there",
		"(pidfd_getfd: operation not permitted)", "CAP_SYS_PTRACE", "kernel.yama.ptrace_scope=0"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("it says %s, and not %q", out, part)
		}
	}
	if err := fetch(&http.Client{Timeout: tooLong}, "http://"+g.Listen[0].Address); err != nil {
		t.Errorf("a client, after that: %v", err)
	}
	h := launchWith(t, cfg).ready()
	equal(t, "pids", pidsOf(h, "web"), before)
}
