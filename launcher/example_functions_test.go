//go:build unix

package launcher_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/launcher"
	pb "github.com/swansong-go/swansong/launcher/lifecyclepb"
)

// exampleDir returns a directory for a launcher and a function that removes it.
func exampleDir() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "swl") // a short path, because the length of socket paths is limited
	if err != nil {
		panic(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

// sleepers returns a group of a program that does not speak the protocol.
func sleepers(n int) launcher.GroupConfig {
	return launcher.GroupConfig{Name: "sleeper", Command: []string{"sleep", "1000"}, Protocol: launcher.Signals, Desired: n}
}

// A launcher is part of the scope that it is started in. Stopping that scope stops all processes
// and waits for them.
func ExampleStart() {
	dir, remove := exampleDir()
	defer remove()
	app := ctxshutdown.New(context.Background()) // a real program uses the scope that graceful.Run passes
	defer app.Shutdown()

	m, err := launcher.Start(app, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(2)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready:", m.Ready(app))
	fmt.Println("drained:", app.Shutdown().Wait(context.Background()))
	for _, p := range m.Health()[0].Processes {
		fmt.Println(p.State, p.Outcome)
	}
	// Output:
	// ready: <nil>
	// drained: <nil>
	// COMPLETE CLEAN
	// COMPLETE CLEAN
}

// A program that only runs jobs ends when they have ended.
func ExampleManager_Finished() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	job := launcher.GroupConfig{Name: "report", Command: []string{"true"}, Protocol: launcher.Signals, Job: true, Desired: 1}
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{job}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("failed:", m.Finished(ctx))
	m.Shutdown().Wait(ctx)
	// Output:
	// failed: <nil>
}

// Another program of the same user, such as a command for operators, needs only the directory.
func ExampleDial() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Completion().Wait(ctx)
	defer m.Shutdown()
	if err := m.Ready(ctx); err != nil { // Start does not wait for the processes
		fmt.Println(err)
		return
	}

	to, conn, err := launcher.Dial(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	out, err := to.StopProcess(ctx, &pb.StopProcessRequest{ProcessId: "sleeper-1", Reason: "it is late", Wait: true})
	fmt.Println(out.GetStatus().GetOutcome(), err)
	// Output:
	// CLEAN <nil>
}

// Over TCP both sides present a certificate. If a certificate file is missing, DialTLS returns an
// error. If the launcher does not listen, DialTLS succeeds and the first call returns the error.
func ExampleDialTLS() {
	to, conn, err := launcher.DialTLS("build.example.com:9443", launcher.TLS{Cert: "alice.pem", Key: "alice.key", CA: "ca.pem"})
	if err != nil {
		fmt.Println("no certificate:", errors.Is(err, fs.ErrNotExist))
		return
	}
	defer conn.Close()
	out, err := to.GetGroupHealth(context.Background(), &pb.GetGroupHealthRequest{})
	fmt.Println(len(out.GetGroups()), err)
	// Output:
	// no certificate: true
}

// A program that checks LISTEN_PID, as sd_listen_fds(3) does, is started by a helper. The helper
// can be the launcher's own program, if its main begins with
//
//	if len(os.Args) > 3 && os.Args[1] == "exec" {
//		log.Fatal(launcher.Exec(os.Args[3:]))
//	}
func ExampleExec() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	printed, output := io.Pipe()
	m, err := launcher.Start(ctx, launcher.Config{
		Dir:    dir,
		Output: output,
		Helper: []string{os.Args[0], "exec", "--"},
		Groups: []launcher.GroupConfig{{
			Name:     "web",
			Command:  []string{"sh", "-c", `test "$LISTEN_PID" = $$ && echo "$LISTEN_FDNAMES is for me"; exec sleep 1000`},
			Protocol: launcher.Signals,
			Desired:  1,
			Listen:   []launcher.Listen{{Name: "http", Address: "127.0.0.1:0"}},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	line, _ := bufio.NewReader(printed).ReadString('\n')
	_, line, _ = strings.Cut(line, " ") // cut off the time at the beginning of the line
	fmt.Print(line)
	printed.Close() // later lines are not read
	fmt.Println("drained:", m.Shutdown().Wait(ctx))
	// Output:
	// web-1 out | http is for me
	// drained: <nil>
}

// A guardian kills what a killed launcher leaves. It can be the launcher's own program, if its main
// begins with
//
//	if len(os.Args) > 1 && os.Args[1] == "guardian" {
//		if err := launcher.Guard(); err != nil {
//			log.Fatal(err)
//		}
//		return
//	}
func ExampleGuard() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{
		Dir:      dir,
		Guardian: []string{os.Args[0], "guardian"},
		Groups:   []launcher.GroupConfig{sleepers(2)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("guarded:", m.Ready(ctx))
	fmt.Println("drained:", m.Shutdown().Wait(ctx)) // when Wait returns nil, the guardian has ended, too
	// Output:
	// guarded: <nil>
	// drained: <nil>
}

// A service cannot have two instances at a time. With a MaxSurge of 0, a roll stops the old process
// before it starts the new one. Int is needed, because a nil MaxSurge means the default.
func ExampleInt() {
	g := sleepers(1)
	g.MaxSurge, g.MinHealthy = launcher.Int(0), launcher.Int(0)
	fmt.Println(launcher.Config{Dir: "/run/sleeper", Groups: []launcher.GroupConfig{g}}.Validate())

	g.MinHealthy = launcher.Int(1)
	fmt.Println(launcher.Config{Dir: "/run/sleeper", Groups: []launcher.GroupConfig{g}}.Validate())
	// Output:
	// <nil>
	// launcher: group "sleeper": MaxSurge: 0 with MinHealthy = Desired (1) leaves no way to replace an instance; make it 1 or more, or lower MinHealthy
}

// DefaultGroup returns a group with all defaults. A field that is then set to 0 means 0, and not
// the default.
func ExampleDefaultGroup() {
	g := launcher.DefaultGroup()
	g.Name, g.Command = "sleeper", []string{"sleep", "60"}
	g.Restart.CrashLimit = 0 // 0 means no limit here, and not the default
	g.Shutdown.SIGTERMTimeout = 0
	fmt.Println(g.Desired, g.HealthCheckTimeout, g.Restart.MinBackoff, g.Bound())
	// Output:
	// 1 30s 1s 16s
}

// The path of the socket is for programs in other languages that speak gRPC.
func ExampleSocketIn() {
	fmt.Println(launcher.SocketIn("/run/swansong"))
	// Output:
	// /run/swansong/launcher.sock
}

// A state file was cut off, for example by a disk. Recover renames it, and writes another one for
// the next launcher, with the processes that it finds. Here nothing runs.
func ExampleRecover() {
	dir, remove := exampleDir()
	defer remove()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"format": "swansong laun`), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	var r *launcher.Recovery
	r, err := launcher.Recover(launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}}, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Damage)
	var adopted []launcher.Recovered = r.Processes
	fmt.Println("the next launcher adopts", len(adopted), "processes")
	fmt.Println("the damaged file still exists:", strings.HasPrefix(filepath.Base(r.SetAside), "state.json.corrupt-"))
	// Output:
	// not valid JSON: unexpected end of JSON input
	// the next launcher adopts 0 processes
	// the damaged file still exists: true
}

// An operator's program takes a group out of service and back, and changes its size.
func ExampleManager_StopGroup() {
	dir, remove := exampleDir()
	defer remove()
	ctx := context.Background()
	m, err := launcher.Start(ctx, launcher.Config{Dir: dir, Groups: []launcher.GroupConfig{sleepers(1)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { m.Shutdown().Wait(ctx) }()
	if err := m.StopGroup(ctx, "sleeper", "maintenance"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(m.Health()[0].Total, m.Health()[0].Message)
	if err := m.StartGroup(ctx, "sleeper", "maintenance is over"); err != nil {
		fmt.Println(err)
	}
	if err := m.Scale(ctx, "sleeper", 2, "more work"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(m.Health()[0].Ready, m.Health()[0].Message)
	ids, err := m.Signal("sleeper", syscall.SIGCONT, "test")
	fmt.Println(len(ids), err)
	// Output:
	// 0 stopped by an operator; launcher start sleeper starts it
	// 2 an operator has scaled the group up by 1 from desired_instances (1)
	// 2 <nil>
}

// A program runs as an ordinary user. The kernel limits its open files, the size of its core dumps,
// its memory and its processor time.
func ExampleRlimit() {
	web := launcher.GroupConfig{
		Name: "web", Command: []string{"/usr/local/bin/web"}, Protocol: launcher.Signals, Desired: 1,
		User:       "www-data",
		Rlimits:    []launcher.Rlimit{{Name: "nofile", Soft: 1024, Hard: 65536}, {Name: "core", Soft: 0, Hard: launcher.Unlimited}},
		Limits:     launcher.LimitConfig{Memory: 256 << 20, CPUs: 1.5, IfUnavailable: launcher.Warn},
		DependsOn:  []string{"migrate"},
		Conditions: map[string]launcher.Condition{"migrate": launcher.IsCompleted},
	}
	migrate := launcher.GroupConfig{Name: "migrate", Command: []string{"/usr/local/bin/migrate"}, Job: true, Desired: 1}
	fmt.Println(launcher.Config{Dir: "/run/web", Groups: []launcher.GroupConfig{migrate, web}}.Validate())
	// Output:
	// <nil>
}
