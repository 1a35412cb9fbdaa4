package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy is a program that balances the load between two servers.
type proxy struct {
	name     string
	upstream string // the protocol that the proxy speaks to the servers
	// config is the configuration file. The method start replaces its placeholders. The proxy
	// listens on DIR/socket, or on FRONT if that occurs in config or in command.
	config  string
	command []string
	body    string // body of each request
}

// Each proxy is configured to try the other server if it cannot connect to one, and to keep trying
// both. All other settings are the defaults. No proxy sends a POST again once it has sent a part of
// it. Caddy 2.6, which Debian 12 has, answers 502 to a request with a body if it could not connect
// to the first server: https://github.com/caddyserver/caddy/issues/7546. Debian has no package of
// Traefik; `make traefik` builds it.
var proxies = []proxy{
	{"nginx", "HTTP/1.1", nginxConfig, []string{"nginx", "-p", "DIR", "-e", "DIR/log", "-c", "DIR/config.yaml"}, "body"},
	{"haproxy", "HTTP/1.1", haproxyConfig, []string{"haproxy", "-q", "-db", "-f", "DIR/config.yaml"}, "body"},
	{"haproxy", "h2c", strings.Replace(haproxyConfig, "balance roundrobin", "default-server proto h2", 1), []string{"haproxy", "-q", "-db", "-f", "DIR/config.yaml"}, "body"},
	{"Apache", "HTTP/1.1", apacheConfig, []string{"apache2", "-X", "-f", "DIR/config.yaml"}, "body"},
	{"Caddy", "HTTP/1.1", caddyConfig, []string{"caddy", "run", "--adapter", "caddyfile", "--config", "DIR/config.yaml"}, ""},
	{"Caddy", "h2c", strings.ReplaceAll(caddyConfig, "versions 1.1", "versions h2c 2"), []string{"caddy", "run", "--adapter", "caddyfile", "--config", "DIR/config.yaml"}, ""},
	{"Traefik", "HTTP/1.1", strings.ReplaceAll(traefikConfig, "SCHEME", "http"), traefik, "body"},
	{"Traefik", "h2c", strings.ReplaceAll(traefikConfig, "SCHEME", "h2c"), traefik, "body"},
}

var traefik = []string{"traefik", "--entrypoints.web.address=FRONT", "--providers.file.filename=DIR/config.yaml",
	"--global.checknewversion=false", "--log.level=ERROR"}

// missing returns what this machine lacks to run the proxy, such as the program of the proxy, or ""
// if it lacks nothing.
func (p proxy) missing() string {
	if runtime.GOOS != "linux" {
		return "Linux" // the servers need several loopback addresses, and most other systems have only 127.0.0.1
	}
	if _, err := exec.LookPath(p.command[0]); err != nil {
		return p.command[0]
	}
	return ""
}

// start runs the proxy in the directory dir, and returns when it forwards requests. The parameter
// servers has the TCP addresses of the servers. It returns a function that connects to the proxy,
// and one that ends it.
func (p proxy) start(dir string, servers []string) (dial func() (net.Conn, error), end func(), err error) {
	network, front := "unix", filepath.Join(dir, "socket")
	if strings.Contains(p.config+strings.Join(p.command, " "), "FRONT") {
		network = "tcp"
		if front, err = unusedPort(servers[0]); err != nil {
			return nil, nil, err
		}
	}
	dial = func() (net.Conn, error) { return net.Dial(network, front) }
	fill := strings.NewReplacer("DIR", dir, "FRONT", front, "SERVER1", servers[0], "SERVER2", servers[1])
	// All proxies get a file with the extension yaml, because Traefik reads only files with an
	// extension that it knows. The other proxies ignore the extension.
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(fill.Replace(p.config)), 0o666); err != nil {
		return nil, nil, err
	}
	args := make([]string, len(p.command))
	for i, a := range p.command {
		args[i] = fill.Replace(a)
	}
	var output strings.Builder
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); cmd.Wait() }()
	for {
		if answers(dial) {
			return dial, func() { cmd.Process.Kill(); <-ended }, nil
		}
		select {
		case <-ended:
			return nil, nil, fmt.Errorf("%s exited before it forwarded requests: %s", args[0], output.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// answers reports whether a proxy forwards a request. Traefik answers 404 until it has read its
// configuration.
func answers(dial func() (net.Conn, error)) bool {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() }, DisableKeepAlives: true}
	req, _ := http.NewRequest("GET", "http://proxy/", nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// unusedPort returns an address with the same host as addr, and a port on which no program listens.
func unusedPort(addr string) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// A restarts counts the requests and errors that the clients of a proxy saw while the servers
// behind the proxy were restarted.
type restarts struct {
	requests atomic.Int64
	mu       sync.Mutex
	errors   map[string]int // number of errors by kind
}

func (r *restarts) fail(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors[kind]++
}

func (r *restarts) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.errors {
		n += m
	}
	return n
}

// String returns the number of errors, and their kinds.
func (r *restarts) String() string {
	text := fmt.Sprint(r.total())
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, n := range r.errors {
		text += fmt.Sprintf(", %d × %s", n, kind)
	}
	return text
}

// restartBehind restarts the two servers behind p in turn, n times in all, while clients send POST
// requests to p. Between two requests a client pauses, on average for the time think. A restart
// begins when the server that was restarted before is back and has answered requests.
func restartBehind(p proxy, how string, clients, n int, think time.Duration) (*restarts, error) {
	h2c := p.upstream == "h2c"
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	// The servers listen on a loopback address that no other program uses, so that no other program
	// can take the port of a server while the server is restarted.
	host := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.N(250), rand.N(250), 1+rand.N(250))
	var answered [2]atomic.Int64
	var servers [2]*running
	addrs := []string{host, host}
	start := func(i int) error {
		make := plain
		if h2c {
			make = cleartext2
		}
		ln, err := net.Listen("tcp", addrs[i])
		if err != nil {
			return err
		}
		addrs[i] = ln.Addr().String()
		servers[i] = serveOn(ln, how, make(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if (r.ProtoMajor == 2) != h2c {
				// The proxy has not used the version of HTTP for which it is configured.
				w.WriteHeader(http.StatusHTTPVersionNotSupported)
			}
			io.Copy(w, r.Body)
			answered[i].Add(1)
		})))
		return nil
	}
	for i := range servers {
		if err := start(i); err != nil {
			return nil, err
		}
		defer func() { servers[i].stop(); <-servers[i].done }()
	}
	dial, end, err := p.start(dir, addrs)
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	r := &restarts{errors: map[string]int{}}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() { r.send(ctx, dial, p.body, think) })
	}
	defer wg.Wait()
	defer stop()
	for i := range n {
		for j := range answered { // wait until the proxy uses both servers
			for from := answered[j].Load(); answered[j].Load() < from+int64(2*clients); {
				if r.total() > 10_000 {
					return nil, fmt.Errorf("%s has stopped answering requests; errors so far: %v", p.name, r)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		servers[i%2].stop()
		<-servers[i%2].done
		if err := start(i % 2); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// send sends requests that net/http cannot repeat, until ctx is done.
func (r *restarts) send(ctx context.Context, dial func() (net.Conn, error), body string, think time.Duration) {
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() }}
	defer tr.CloseIdleConnections()
	for ctx.Err() == nil {
		r.requests.Add(1)
		req, _ := http.NewRequest("POST", "http://proxy/", struct{ io.Reader }{strings.NewReader(body)})
		req.ContentLength = int64(len(body))
		if body == "" {
			req.Body = http.NoBody
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			r.fail("connection ended by the proxy")
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			r.fail(resp.Status)
		} else if err != nil || string(got) != body {
			r.fail(fmt.Sprintf("incomplete response (%v)", err))
		}
		if think > 0 {
			select {
			case <-time.After(think/2 + rand.N(think)):
			case <-ctx.Done():
			}
		}
	}
}

// behindProxies writes the table of the errors that clients see when servers behind a proxy are
// restarted.
func behindProxies(w io.Writer, n int) error {
	const clients = 50
	fmt.Fprintf(w, "\n## Behind proxies\n\nTwo servers behind a proxy, restarted in turn, %d times in all, while %d clients send POST requests. Each client pauses\n"+
		"between its requests, from half to one and a half times the pause in the table. The proxy connects to the other server\n"+
		"if one is away, and sends no request twice. Errors are what the clients see. Requests\n"+
		"through Caddy have no body, because Caddy 2.6 loses the body if the first server is away.\n\n", n, clients)
	fmt.Fprintf(w, "| proxy | to the servers | pause | way | requests | errors |\n| --- | --- | ---: | --- | ---: | --- |\n")
	for _, p := range proxies {
		if p.missing() != "" {
			fmt.Fprintf(os.Stderr, "measure: %s is missing, so %s is left out\n", p.missing(), p.name)
			continue
		}
		for _, think := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond} {
			for _, how := range ways {
				r, err := restartBehind(p, how, clients, n, think)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "| %s | %s | %v | %s | %d | %v |\n", p.name, p.upstream, think, how, r.requests.Load(), r)
			}
		}
	}
	return nil
}
