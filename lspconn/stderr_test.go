package lspconn_test

import (
	"strings"
	"testing"

	"github.com/swansong-go/swansong/internal/testkit"
	"github.com/swansong-go/swansong/lspconn"
)

// The texts are real output of Node 20, Go 1.26, Python 3, Rust, Java, clap 4, clangd and ast-grep.
func TestErrorLine_ReturnsLineThatNamesError(t *testing.T) {
	for _, test := range []struct{ name, stderr, want string }{
		{"nothing", "", ""},
		{"one line", "no license\n", "no license"},
		{"last line of a log", "starting\nlistening\nout of disk\r\n\n", "out of disk"},
		{"Node: a module is missing", `node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module 'vscode-languageserver/nope'
Require stack:
- /srv/server.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at evalScript (node:internal/process/execution:133:3) {
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/srv/server.js' ]
}

Node.js v20.20.2
`, "Error: Cannot find module 'vscode-languageserver/nope'"},
		{"Node: an error of two lines, with a cause, after a handled one", `Error: handled
    at f (/srv/server.js:2:21)
/srv/server.js:3
throw new Error("cannot load the project", {cause: e})
      ^

Error: cannot load the project
it has no configuration
    at Object.<anonymous> (/srv/server.js:3:31)
    at node:internal/main/run_main_module:28:49 {
  [cause]: TypeError: Cannot read properties of null (reading 'x')
      at f (/srv/server.js:2:21)
}

Node.js v20.20.2
`, "Error: cannot load the project"},
		{"Node: a crash whose beginning was dropped", `    at f (/srv/server.js:2:21)
    at node:internal/main/run_main_module:28:49

Node.js v20.20.2
`, "Node.js v20.20.2"},
		{"Node: no memory", `<--- JS stacktrace --->

FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory
----- Native stack trace -----

 1: 0xb78db3 node::OOMErrorHandler(char const*, v8::OOMDetails const&) [node]
 2: 0x195e476  [node]
`, "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"},
		{"Go: a panic", `panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x47a1f4]

goroutine 1 [running]:
main.(*server).load(0x0, {0xc000012120?, 0x1})
	/srv/main.go:12 +0x14
created by main.main in goroutine 7
	/srv/main.go:5 +0x1d
exit status 2
`, "panic: runtime error: invalid memory address or nil pointer dereference"},
		{"Go: a panic in a deferred function", "panic: first\n\tpanic: second\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:5 +0x1d\n", "panic: first"},
		{"Go: a fatal signal", "SIGQUIT: quit\nPC=0x40e0ec m=0 sigcode=0\n\ngoroutine 117 gp=0x11a9d2bba000 m=0 mp=0x20de2e0 [syscall]:\nsyscall.Syscall(0x0, 0x0, 0x11a9d2964000, 0x1000)\n\t/usr/local/go/src/syscall/syscall_linux.go:74 +0x25\n\nrax    0x0\nr15    0x11a9d2785f80\nrip    0x40e0ec\nrflags 0x216\ngs     0x0\n", "SIGQUIT: quit"},
		{"Go: no stack", "runtime: goroutine stack exceeds 1000000000-byte limit\nruntime: sp=0x230ab5ae0388 stack=[0x230ab5ae0000, 0x230ad5ae0000]\nfatal error: stack overflow\n\nruntime stack:\nruntime.throw({0x4e568d?, 0x230a95a0cd20?})\n\t/usr/local/go/src/runtime/panic.go:1229 +0x48\n\ngoroutine 1 [running]:\nmain.f.func1(0x0?)\n\t/srv/main.go:7 +0x2a\n...9586930 frames elided...\nmain.main()\n\t/srv/main.go:5 +0x1d\n", "fatal error: stack overflow"},
		{"Go: an unknown flag", "flag provided but not defined: -nosuch\nUsage of server:\n  -port int\n    \tthe port\n", "flag provided but not defined: -nosuch"},
		{"Go: an invalid flag", "invalid value \"a\" for flag -port: parse error\nUsage of server:\n  -port int\n    \tthe port\nexit status 2\n", "invalid value \"a\" for flag -port: parse error"},
		{"Go: a flag refused by a tool of the server", "flag provided but not defined: -x\nUsage of tool:\n  -port int\n    \tthe port\npanic: first\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:5 +0x1d\n", "panic: first"},
		{"Go: a flag refused by a tool of the server, which goes on", "flag provided but not defined: -x\nUsage of tool:\n  -port int\n    \tthe port\n2026/11/26 10:00:00 listening without the tool\ncannot open the cache\n", "cannot open the cache"},
		{"Go: escaped and other letters in names", "panic: first\n\ngoroutine 1 [running]:\nmain.größe({0x1, 0x2})\n\t/srv/main.go:5 +0x1d\ngithub.com/nats-io/nats%2ego.(*Conn).readLoop(0xc000012345)\n\t/srv/nats.go:5 +0x1d\ncreated by main.main in goroutine 1\n\t/srv/main.go:9 +0x1d\n[originating from goroutine 1]:\nmain.main()\n\t/srv/main.go:9 +0x1d\n", "panic: first"},
		{"a number of an error is no register", "started\nerror 0x80070005\n", "error 0x80070005"},
		{"Python: an exception group", `  + Exception Group Traceback (most recent call last):
  |   File "/srv/server.py", line 7, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/srv/server.py", line 4, in b
    |     async def b(): raise TypeError("two")
    |                    ^^^^^^^^^^^^^^^^^^^^^^
    | TypeError: two
    +------------------------------------
`, "TypeError: two"},
		{"Python", `Traceback (most recent call last):
  File "/srv/server.py", line 2, in <module>
    import nope
ModuleNotFoundError: No module named 'nope'
`, "ModuleNotFoundError: No module named 'nope'"},
		{"Rust", "thread 'main' panicked at src/main.rs:4:5:\nno such project\nstack backtrace:\n   0: rust_begin_unwind\n             at /rustc/library/std/src/panicking.rs:597:5\nnote: run with `RUST_BACKTRACE=full` for a verbose backtrace\n", "no such project"},
		{"Java", "Exception in thread \"main\" java.lang.IllegalStateException: no workspace\n\tat Server.load(Server.java:3)\n\tat Server.main(Server.java:7)\n", "Exception in thread \"main\" java.lang.IllegalStateException: no workspace"},
		{"clap", "error: unexpected argument '--nope' found\n\n  tip: to pass '--nope' as a value, use '-- --nope'\n\nUsage: server lsp [OPTIONS]\n\nFor more information, try '--help'.\n", "error: unexpected argument '--nope' found"},
		{"clangd", "clangd: Unknown command line argument '--nope'.  Try: 'clangd --help'\nclangd: Did you mean '--log'?\n", "clangd: Unknown command line argument '--nope'.  Try: 'clangd --help'"},
		{"ast-grep", "Error: No ast-grep project configuration is found.\nHelp: You need to create an ast-grep project for this command.\nSee also: https://ast-grep.github.io/guide/scan-project.html\n\n", "Error: No ast-grep project configuration is found."},
		{"clangd: a log", "I[12:00:00.001] Starting LSP over stdin/stdout\nE[12:00:00.002] Could not load the database\nI[12:00:00.003] <-- shutdown(3)\n", "E[12:00:00.002] Could not load the database"},
		{"a log without an error", "server 1.2\n2026-11-25 12:00:00 INFO server: no workspace\n", "2026-11-25 12:00:00 INFO server: no workspace"},
		{"a log, and then a crash", "2026-11-25 12:00:00 ERROR server: no cache\nout of memory\n", "out of memory"},
		{"colours", "\x1b[1m\x1b[31merror:\x1b[0m no project\n\x1b[32mhelp: \x1b[0mmake one\n", "error: no project"},
		{"nothing but advice", "usage: server [-stdio]\n", "usage: server [-stdio]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testkit.Equal(t, "line", lspconn.ErrorLine(test.stderr), test.want)
		})
	}
}

// If the stack traces that follow an error are longer than the text in a report, the report begins
// with the error.
func TestEndOfStderr_ContainsErrorEvenIfLongStackTraceFollows(t *testing.T) {
	for _, test := range []struct{ name, trace string }{
		{"goroutines", strings.Repeat("goroutine 7 [sync.Mutex.Lock]:\nmain.wait(0x0)\n\t/srv/main.go:5 +0x1d\n\n", 1000)},
		{"in colours", strings.Repeat("\x1b[1mmain.wait(0x0)\x1b[0m\n\x1b[2m\t/srv/main.go:5 +0x1d\x1b[0m\n", 1000)},
		{"Java", strings.Repeat("\tat Server.load(Server.java:3)\n", 1024)},
	} {
		end := lspconn.EndOfStderr("started\nfatal error: too deep\n" + test.trace)
		if !strings.HasPrefix(end, "fatal error: too deep\n...\n") || len(end) > 9<<10 || !strings.HasSuffix(test.trace, end[len(end)-8000:]) {
			t.Errorf("%s: %d bytes, which begin %.60q; want the error, dots, and the last 8 KiB", test.name, len(end), end)
		}
		testkit.Equal(t, "line", lspconn.ErrorLine(end), "fatal error: too deep")
	}
	log := "ERROR long ago\n" + strings.Repeat("2026-11-25 12:00:00 INFO server: request\n", 1000)
	if end := lspconn.EndOfStderr(log); len(end) > 8<<10 || !strings.HasPrefix(end, "2026") {
		t.Errorf("a log: %d bytes, which begin %.60q; want the last complete lines of 8 KiB", len(end), end)
	}
}
