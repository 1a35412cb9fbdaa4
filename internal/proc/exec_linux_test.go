package proc_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/swansong-go/swansong/internal/proc"
)

func init() {
	if strings.HasPrefix(os.Getenv(asRole), "exec") {
		runtime.LockOSThread()
	}
	roles["await"] = func([]string) { io.Copy(io.Discard, os.Stdin) }
	// The role "executes" starts a process that the kernel kills when its parent dies, and executes
	// itself anew as the role "executed". The process receives SIGUSR2 when "executed" has begun to
	// run and does not handle the signal yet.
	roles["executes"] = func([]string) {
		panic(proc.ServeForks(func() {
			spec := self("await")
			spec.ParentDeath = syscall.SIGKILL
			spec.Stdout = os.Stderr
			child, err := proc.Start(spec)
			if err != nil {
				panic(err)
			}
			k, _ := json.Marshal(child.Identity())
			stdin, err := child.Stdin().SyscallConn()
			if err != nil {
				panic(err)
			}
			var fd uintptr
			stdin.Control(func(n uintptr) { fd = n })
			env := append(os.Environ(), asRole+"=executed", fmt.Sprintf("CHILD=%s", k), fmt.Sprintf("STDIN=%d", fd))
			missing := proc.Exec("/no/such/program", os.Args, func() []string { return env }, nil)
			fmt.Println(missing)
			var late atomic.Bool
			syscall.ForkLock.RLock() // Exec waits for this lock, which is also held while a process starts
			go func() {
				// An Exec that did not wait for the lock would read late before this goroutine sets
				// it.
				time.Sleep(10 * time.Millisecond)
				late.Store(true)
				syscall.ForkLock.RUnlock()
			}()
			panic(proc.Exec(os.Args[0], os.Args, func() []string { return append(env, fmt.Sprint("LATE=", late.Load())) }, []*os.File{child.Stdin()}))
		}))
	}
	// The role "executed" ends the process that the role "executes" has started, and prints how
	// that process ended.
	roles["executed"] = func([]string) {
		panic(proc.ServeForks(func() {
			syscall.Kill(os.Getpid(), syscall.SIGUSR2) // as if another process had sent the signal during the exec
			// If the signal is not blocked, it is lost in this time.
			time.Sleep(20 * time.Millisecond)
			usr2 := make(chan os.Signal, 1)
			signal.Notify(usr2, syscall.SIGUSR2)
			<-usr2
			var k proc.Adoptable
			if err := json.Unmarshal([]byte(os.Getenv("CHILD")), &k); err != nil {
				panic(err)
			}
			child, err := proc.Adopt(k, proc.Spec{Child: true})
			if err != nil {
				panic(err)
			}
			var stdin int
			fmt.Sscan(os.Getenv("STDIN"), &stdin)
			os.NewFile(uintptr(stdin), "stdin").Close()
			<-child.Done()
			fmt.Println("the child ended:", child.Exit())
			fmt.Println("the environment is made after Exec has waited:", os.Getenv("LATE"))
			other, err := proc.Start(proc.Spec{Args: []string{"grep", "SigBlk", "/proc/self/status"}, Stdout: os.Stdout, Stderr: os.Stderr})
			if err != nil {
				panic(err)
			}
			<-other.Done()
			os.Exit(0)
		}))
	}
}

// A program that executes itself anew keeps its child processes, including those that the kernel
// kills when their parent dies, and gets their exit status. A signal that arrives during the exec
// is not lost.
func TestExec_KeepsChildProcessesAndPendingSignals(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asRole+"=executes")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "execve /no/such/program: no such file or directory\nthe child ended: exit status 0\nthe environment is made after Exec has waited: true\nSigBlk:\t0000000000000000\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// A program that has not called ServeForks, and so does not fork on its main thread, cannot call
// Exec.
func TestExec_FailsIfProgramHasNotCalledServeForks(t *testing.T) {
	if err := proc.Exec(os.Args[0], nil, nil, nil); err != proc.ErrNotMainThread {
		t.Errorf("Exec: %v", err)
	}
}

// A pause loses no output. Pause returns what the reader has passed to Keep, and after Resume the
// reader gets what the process printed during the pause.
func TestOutput_PauseAndResumeLoseNoOutput(t *testing.T) {
	p := start(t, self("pingable"))
	lines := bufio.NewReader(p.Stdout())
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	o := p.Stdout()
	got := make(chan string)
	go func() {
		var kept []byte
		for {
			b := make([]byte, 16)
			o.Keep(kept)
			n, err := o.Read(b)
			kept = append(kept, b[:n]...)
			if err != nil {
				got <- string(kept)
				return
			}
			got <- string(b[:n])
		}
	}()
	p.Stdin().WriteString("begin")
	for first := ""; first != "begin"; {
		first += <-got
	}
	_, kept := o.Pause()
	if string(kept) != "begin" {
		t.Errorf("kept: %q", kept)
	}
	p.Stdin().WriteString(" and end")
	select {
	case text := <-got:
		t.Errorf("read during the pause: %q", text)
	case <-time.After(20 * time.Millisecond): // the reader has stayed blocked for a while
	}
	o.Resume()
	for rest := ""; rest != " and end"; {
		rest += <-got
	}
	p.Stdin().Close()
	if all := <-got; all != "begin and end" {
		t.Errorf("read in total: %q", all)
	}
	// The output has ended, so Pause returns at once.
	if _, kept := o.Pause(); kept != nil {
		t.Errorf("kept at the end: %q", kept)
	}
	o.Resume()
}

// A pause loses nothing of the output of a process that has ended, even if the reader has read only
// a part of it.
func TestOutput_PauseAndResumeLoseNoOutputOfEndedProcess(t *testing.T) {
	p, err := proc.Start(proc.Spec{Args: []string{"printf", "all of it"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	<-p.Done()
	o := p.Stdout()
	first := make([]byte, 3)
	if _, err := io.ReadFull(o, first); err != nil {
		t.Fatal(err)
	}
	o.Resume() // stands for a whole pause, from Pause to Resume, between two calls of Read
	rest, err := io.ReadAll(o)
	if err != nil || string(first)+string(rest) != "all of it" {
		t.Errorf("read %q and %q, %v", first, rest, err)
	}
}
