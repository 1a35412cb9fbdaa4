package httpclients

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	gorilla "github.com/gorilla/websocket"
	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/httpdrain"
	"github.com/swansong-go/swansong/internal/testkit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A goroutine of h2spec blocks for ever if a handshake takes longer than the time-out of the
	// case, as it can on a busy machine.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/summerwind/h2spec/spec.(*Conn).handshakeAsClient.func1"))
}

func start(t *testing.T, h http.Handler, opts ...httpdrain.Option) (addr string, s *ctxshutdown.Swansong, done chan error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = ctxshutdown.New(context.Background())
	done = make(chan error, 1)
	g := s.Guard()
	go func() { defer g.Release(); done <- httpdrain.Serve(s, &http.Server{Handler: h}, ln, opts...) }()
	t.Cleanup(func() {
		if err := s.Force(nil).Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String(), s, done
}

// coderEcho echoes messages until the stop, and then closes the websocket after the current
// message.
func coderEcho(w http.ResponseWriter, r *http.Request) {
	c, err := coder.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	scope, _ := ctxshutdown.FromContext(r.Context())
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(scope, func() { c.Close(coder.StatusGoingAway, "bye") })
	defer stop()
	for {
		kind, b, err := c.Read(ctx)
		if err != nil {
			return
		}
		c.Write(ctx, kind, b)
	}
}

func gorillaEcho(w http.ResponseWriter, r *http.Request) {
	var up gorilla.Upgrader
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	scope, _ := ctxshutdown.FromContext(r.Context())
	stop := context.AfterFunc(scope, func() {
		// Of the methods that write to the connection, only WriteControl may be called concurrently
		// with another one.
		c.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(gorilla.CloseGoingAway, "bye"), time.Now().Add(time.Second))
	})
	defer stop()
	for {
		kind, b, err := c.ReadMessage()
		if err != nil {
			return
		}
		c.WriteMessage(kind, b)
	}
}

// With each library and each router, the client receives the status "going away", and the drain
// waits until the websocket is closed.
func TestWebsockets_ClientGetsGoingAwayAtDrain(t *testing.T) {
	for server, handler := range map[string]http.HandlerFunc{"coder": coderEcho, "gorilla": gorillaEcho} {
		for router, mount := range map[string]func(http.HandlerFunc) http.Handler{
			"mux": func(h http.HandlerFunc) http.Handler { m := http.NewServeMux(); m.HandleFunc("/ws", h); return m },
			"chi": func(h http.HandlerFunc) http.Handler {
				r := chi.NewRouter()
				r.Use(middleware.RealIP, middleware.Recoverer)
				r.Get("/ws", h)
				return r
			},
		} {
			t.Run(server+" "+router, func(t *testing.T) {
				addr, s, done := start(t, mount(handler), httpdrain.WithPacing(1000))
				var clients sync.WaitGroup
				var ready sync.WaitGroup
				for range 5 {
					ready.Add(2)
					clients.Go(func() { coderClient(t, addr, &ready) })
					clients.Go(func() { gorillaClient(t, addr, &ready) })
				}
				ready.Wait()
				s.Shutdown()
				clients.Wait()
				if err := <-done; err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
		}
	}
}

func coderClient(t *testing.T, addr string, ready *sync.WaitGroup) {
	ctx := context.Background()
	c, _, err := coder.Dial(ctx, "ws://"+addr+"/ws", nil)
	if err != nil {
		t.Error(err)
		ready.Done()
		return
	}
	defer c.CloseNow()
	err = c.Write(ctx, coder.MessageText, []byte("hello"))
	if _, b, err2 := c.Read(ctx); err != nil || err2 != nil || string(b) != "hello" {
		t.Errorf("read %q, %v, %v", b, err, err2)
	}
	ready.Done()
	if _, _, err := c.Read(ctx); coder.CloseStatus(err) != coder.StatusGoingAway {
		t.Errorf("read after the stop: %v, want the status GoingAway", err)
	}
}

func gorillaClient(t *testing.T, addr string, ready *sync.WaitGroup) {
	c, _, err := gorilla.DefaultDialer.Dial("ws://"+addr+"/ws", nil)
	if err != nil {
		t.Error(err)
		ready.Done()
		return
	}
	defer c.Close()
	err = c.WriteMessage(gorilla.TextMessage, []byte("hello"))
	if _, b, err2 := c.ReadMessage(); err != nil || err2 != nil || string(b) != "hello" {
		t.Errorf("read %q, %v, %v", b, err, err2)
	}
	ready.Done()
	if _, _, err := c.ReadMessage(); !gorilla.IsCloseError(err, gorilla.CloseGoingAway) {
		t.Errorf("read after the stop: %v, want the status GoingAway", err)
	}
}

// Force closes a websocket whose handler ignores the stop, and CutError has its route.
func TestWebsockets_ForceClosesConnection(t *testing.T) {
	entered := make(chan struct{}, 2)
	r := chi.NewRouter()
	r.Get("/rooms/{room}", func(w http.ResponseWriter, r *http.Request) {
		var up gorilla.Upgrader
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		entered <- struct{}{}
		c.ReadMessage()
	})
	leave := make(chan struct{})
	defer close(leave)
	r.Get("/slow/{id}", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		entered <- struct{}{}
		<-leave
	})
	addr, s, done := start(t, r, httpdrain.WithRoute(func(method, path string) string {
		return r.Find(chi.NewRouteContext(), method, path)
	}))
	c, _, err := gorilla.DefaultDialer.Dial("ws://"+addr+"/rooms/7", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	slow, err := http.Get("http://" + addr + "/slow/7")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	<-entered
	<-entered
	s.Shutdown()
	for {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break // the drain has begun
		}
		conn.Close()
	}
	s.Force(nil)
	var cut *httpdrain.CutError
	if err := <-done; !errors.As(err, &cut) || !errors.Is(err, ctxshutdown.ErrForced) {
		t.Fatalf("Serve: %v", err)
	}
	for i := range cut.Cut {
		cut.Cut[i].Age, cut.Cut[i].Remote = 0, ""
	}
	want := []httpdrain.Cut{{Method: "GET", Route: "/rooms/{room}", Hijacked: true}, {Method: "GET", Route: "/slow/{id}"}}
	testkit.Equal(t, "cut", cut.Cut, want)
}
