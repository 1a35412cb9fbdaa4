// Package fakelsp is a language server for tests. It misbehaves on demand: it stops responding at
// any point, breaks the protocol, or exits in the middle of a message. It shares no code with
// lspconn, so that a mistake in one does not hide in the other.
package fakelsp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Behaviour lists how a server misbehaves. The zero Behaviour is a correct server. In each field,
// "" is the correct behaviour.
type Behaviour struct {
	Initialize string // reaction to initialize: "never", "refuse", "exit", "garbage"
	Shutdown   string // reaction to shutdown: "never", "refuse", "exit", "ask" (sends a request first and waits for the response), "close" (closes stdout), "half" (exits when it has sent half of the response)
	Exit       string // reaction to the notification exit: "ignore"; by default the server exits
	EOF        string // reaction to the end of the input: "ignore"; by default the server exits
	StopAfter  int    // the server stops reading after this many messages; 0 means never
	Code       int    // exit code of the server
	IgnoreTerm bool
	Stderr     string // text that the server prints to stderr at the start
}

// A Message is a message that the server has received.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// A Server is one run of the fake language server.
type Server struct {
	Behaviour
	Stopped chan struct{} // if not nil, closed when the server stops reading because of StopAfter

	mu       sync.Mutex
	received []Message
	faults   []string
	asked    map[string]json.RawMessage // for each request of this server, by its id, the id of the client request that waits for the response
	nextID   int
	out      io.Writer

	initialized, shutdown bool
}

// Serve reads and answers messages until the client sends exit, the input ends, or the Behaviour
// makes the server stop. It returns the exit code. If the Behaviour makes the server ignore the
// exit notification or the end of its input, Serve calls hang, which returns when the process is
// killed.
//
// These methods have an effect of their own:
//
//   - echo returns its params, fail an error, never nothing;
//   - twice sends two responses;
//   - send sends each element of its params as a message of its own, and then its response;
//   - ask sends a request to the client and returns the client's response;
//   - notes sends as many notifications as its params say, flood as many requests; while they send,
//     they do not read;
//   - die exits, half exits within a message;
//   - garbage, header, headers, negative, huge and json send something that is not a message.
func (s *Server) Serve(in io.Reader, out io.Writer, hang func()) (code int) {
	s.out, s.asked = out, map[string]json.RawMessage{}
	r := bufio.NewReader(in)
	for {
		m, err := read(r)
		if err == io.EOF {
			if s.EOF == "ignore" {
				hang()
			}
			return s.Code
		}
		if err != nil {
			// If the client was killed or has given up, the input of this server may end in the
			// middle of a message.
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
				s.fault("cannot read a message: " + err.Error())
			}
			return s.Code
		}
		s.mu.Lock()
		s.received = append(s.received, m)
		n := len(s.received)
		s.mu.Unlock()
		if s.StopAfter > 0 && n > s.StopAfter {
			if s.Stopped != nil {
				close(s.Stopped)
			}
			hang()
			return s.Code
		}
		if s.handle(m) {
			return s.Code
		}
	}
}

// handle answers a message and reports whether the server exits.
func (s *Server) handle(m Message) (exit bool) {
	switch {
	case !s.initialized && m.Method != "initialize":
		s.fault("before initialize: " + m.Method)
	case s.shutdown && m.Method != "" && m.Method != "exit":
		s.fault("after shutdown: " + m.Method)
	}
	switch m.Method {
	case "":
		s.handleResponse(m)
	case "initialize":
		return s.handleInitialize(m)
	case "shutdown":
		return s.handleShutdown(m)
	case "exit":
		return s.Exit != "ignore"
	case "initialized", "$/cancelRequest", "note", "never":
	case "die":
		return true
	case "half":
		s.sendHalf()
		return true
	default:
		if !s.answer(m) && !s.breakProtocol(m.Method) {
			s.fault("an unknown method: " + m.Method)
		}
	}
	return false
}

// handleResponse handles the client's response to a request of this server. If a request of the
// client waits for that response, handleResponse answers that request.
func (s *Server) handleResponse(m Message) {
	s.mu.Lock()
	delayed, ok := s.asked[string(m.ID)]
	delete(s.asked, string(m.ID))
	s.mu.Unlock()
	switch {
	case !ok:
		s.fault("a response to a request that was not sent: " + string(m.ID))
	case delayed == nil:
	case m.Error != nil:
		s.send(`{"jsonrpc":"2.0","id":%s,"result":{"error":%s}}`, delayed, m.Error)
	default:
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, delayed, m.Result)
	}
}

func (s *Server) handleInitialize(m Message) (exit bool) {
	if s.initialized {
		s.fault("a second initialize")
	}
	s.initialized = true
	switch s.Initialize {
	case "never":
	case "refuse":
		s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not in the mood"}}`, m.ID)
	case "exit":
		return true
	case "garbage":
		io.WriteString(s.out, "Hello, I am a server.\r\nWhat can I do for you?\r\n\r\n")
	default:
		s.send(`{"jsonrpc":"2.0","id":%s,"result":{"capabilities":{}}}`, m.ID)
	}
	return false
}

func (s *Server) handleShutdown(m Message) (exit bool) {
	s.shutdown = true
	switch s.Shutdown {
	case "never":
	case "refuse":
		s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"I would rather not"}}`, m.ID)
	case "exit":
		return true
	case "close":
		if c, ok := s.out.(io.Closer); ok {
			c.Close()
		}
	case "ask":
		s.ask(m.ID)
	case "half":
		s.sendHalf()
		return true
	default:
		s.send(`{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID)
	}
	return false
}

// answer answers a request with valid messages. It returns false if it does not know the method.
func (s *Server) answer(m Message) bool {
	switch m.Method {
	case "echo":
		params := m.Params
		if params == nil {
			params = json.RawMessage("null")
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, params)
	case "fail":
		s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"no luck","data":[1]}}`, m.ID)
	case "twice":
		s.send(`{"jsonrpc":"2.0","id":%s,"result":1}`, m.ID)
		s.send(`{"jsonrpc":"2.0","id":%s,"result":2}`, m.ID)
	case "send":
		var bodies []json.RawMessage
		if err := json.Unmarshal(m.Params, &bodies); err != nil {
			s.fault("params of send: " + err.Error())
		}
		for _, body := range bodies {
			s.send("%s", body)
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID)
	case "ask":
		s.ask(m.ID)
	case "notes":
		n, _ := strconv.Atoi(string(m.Params))
		for i := range n {
			s.send(`{"jsonrpc":"2.0","method":"note","params":%d}`, i)
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID)
	case "flood":
		n, _ := strconv.Atoi(string(m.Params))
		for range n {
			s.ask(nil)
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID)
	default:
		return false
	}
	return true
}

// breakProtocol sends something that is not a message. It returns false if it does not know the
// method.
func (s *Server) breakProtocol(method string) bool {
	switch method {
	case "garbage":
		io.WriteString(s.out, "panic: runtime error\n\n")
	case "header":
		io.WriteString(s.out, "Content-Type: "+strings.Repeat("x", 9<<10)+"\r\n\r\n")
	case "headers":
		io.WriteString(s.out, strings.Repeat("Content-Type: x\r\n", 4<<10)+"\r\n")
	case "negative":
		io.WriteString(s.out, "Content-Length: -1\r\n\r\n")
	case "huge":
		io.WriteString(s.out, "Content-Length: 999999999999\r\n\r\n")
	case "json":
		s.send(`{"jsonrpc":`)
	default:
		return false
	}
	return true
}

// ask sends a request to the client. delayed is nil, or the id of a request of the client that has
// no response yet. When the client answers ask, the server passes the result on as the response to
// that request.
func (s *Server) ask(delayed json.RawMessage) {
	s.mu.Lock()
	s.nextID++
	id := `"q` + strconv.Itoa(s.nextID) + `"`
	s.asked[id] = delayed
	s.mu.Unlock()
	if delayed == nil {
		delayed = json.RawMessage("null")
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"method":"client/ask","params":{"for":%s}}`, id, delayed)
}

func (s *Server) send(format string, args ...any) {
	body := fmt.Sprintf(format, args...)
	fmt.Fprintf(s.out, "Content-Length: %d\r\n\r\n%s", len(body), body)
}

// sendHalf sends the beginning of a message.
func (s *Server) sendHalf() { io.WriteString(s.out, "Content-Length: 100\r\n\r\n{\"jsonrpc\":") }

func (s *Server) fault(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, text)
}

// Faults returns the client's violations of the protocol.
func (s *Server) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// Received returns all messages that the server has received.
func (s *Server) Received() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

// read reads one message. It accepts nothing but a Content-Length header, so that interleaved
// messages are detected.
func read(r *bufio.Reader) (m Message, err error) {
	if _, err := r.Peek(1); err != nil {
		return m, err
	}
	header, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		return m, err
	}
	n, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil || len(header) != 1 {
		return m, fmt.Errorf("header %v", header)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return m, err
	}
	return m, json.Unmarshal(body, &m)
}
