// Package fakelsp is a language server that does on demand what no real one does: hang at any point, lie, break off. It
// shares no code with lspconn, so that the two do not agree on a mistake.
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

// A Behaviour is what is wrong with a server. The zero Behaviour is a polite one.
type Behaviour struct {
	Initialize string // "": answered, "never", "refuse", "exit", "garbage"
	Shutdown   string // "": answered, "never", "refuse", "exit", "ask": asks something first, and waits for the answer, "close": closes stdout, "half": breaks off within the answer
	Exit       string // "": obeyed, "ignore"
	EOF        string // "": leaves, "ignore"
	StopAfter  int    // reads no more after so many messages; 0: goes on
	Code       int    // exit code
	IgnoreTerm bool
	Stderr     string // printed at the start
}

// A Message is what the server has received.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// A Server is one run of a server.
type Server struct {
	Behaviour
	Stopped chan struct{} // closed when it has stopped reading, by StopAfter; nil: not told

	mu     sync.Mutex
	seen   []Message
	faults []string
	asked  map[string]json.RawMessage // our requests: whom to answer when they are answered
	nextID int
	out    io.Writer
}

// ErrDies is returned by Serve where it was told to die: without another word.
var ErrDies = errors.New("fakelsp: dies")

// Serve reads and answers until it is told to exit, its input ends, or it has been told to break off. It returns the exit
// code. Where it ignores its end, hang is called, which returns when the process is killed.
//
// Methods: "echo" answers its params, "fail" an error, "never" nothing, "twice" answers twice, "stray" answers what nobody
// has asked, "ask" asks the client and answers what that answered, "die" exits at once, "half" exits within a message, and
// "garbage", "header", "negative", "huge", "json", "batch" send no message. "notes" sends as many notifications as its params
// say, and "flood" as many requests; it reads nothing meanwhile.
func (s *Server) Serve(in io.Reader, out io.Writer, hang func()) (code int) {
	s.out, s.asked = out, map[string]json.RawMessage{}
	r := bufio.NewReader(in)
	initialized, shut := false, false
	for {
		m, err := read(r)
		if err == io.EOF {
			if s.EOF == "ignore" {
				hang()
			}
			return s.Code
		}
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) { // the client was killed, or gave up
				s.fault("cannot be read: " + err.Error())
			}
			return s.Code
		}
		s.mu.Lock()
		s.seen = append(s.seen, m)
		n := len(s.seen)
		s.mu.Unlock()
		if s.StopAfter > 0 && n > s.StopAfter {
			if s.Stopped != nil {
				close(s.Stopped)
			}
			hang()
			return s.Code
		}
		isResponse := m.Method == ""
		switch {
		case !initialized && m.Method != "initialize":
			s.fault("before initialize: " + m.Method)
		case shut && !isResponse && m.Method != "exit":
			s.fault("after shutdown: " + m.Method)
		}
		switch m.Method {
		case "":
			s.mu.Lock()
			asker, ok := s.asked[string(m.ID)]
			delete(s.asked, string(m.ID))
			s.mu.Unlock()
			if !ok {
				s.fault("a response to what was not asked: " + string(m.ID))
			} else if asker == nil {
				continue
			} else if m.Error != nil {
				s.send(`{"jsonrpc":"2.0","id":%s,"result":{"error":%s}}`, asker, m.Error)
			} else {
				s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, asker, m.Result)
			}
		case "initialize":
			if initialized {
				s.fault("a second initialize")
			}
			initialized = true
			switch s.Initialize {
			case "never":
			case "refuse":
				s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not in the mood"}}`, m.ID)
			case "exit":
				return s.Code
			case "garbage":
				io.WriteString(s.out, "Hello, I am a server.\r\nWhat can I do for you?\r\n\r\n")
			default:
				s.send(`{"jsonrpc":"2.0","id":%s,"result":{"capabilities":{}}}`, m.ID)
			}
		case "shutdown":
			shut = true
			switch s.Shutdown {
			case "never":
			case "refuse":
				s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"I would rather not"}}`, m.ID)
			case "exit":
				return s.Code
			case "close":
				if c, ok := s.out.(io.Closer); ok {
					c.Close()
				}
			case "ask":
				s.ask(m.ID)
			case "half":
				io.WriteString(s.out, "Content-Length: 100\r\n\r\n{\"jsonrpc\":")
				return s.Code
			default:
				s.send(`{"jsonrpc":"2.0","id":%s,"result":null}`, m.ID)
			}
		case "exit":
			if s.Exit == "ignore" {
				continue
			}
			return s.Code
		case "initialized", "$/cancelRequest", "note":
		case "echo":
			params := m.Params
			if params == nil {
				params = json.RawMessage("null")
			}
			s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, params)
		case "fail":
			s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"no luck","data":[1]}}`, m.ID)
		case "never":
		case "twice":
			s.send(`{"jsonrpc":"2.0","id":%s,"result":1}`, m.ID)
			s.send(`{"jsonrpc":"2.0","id":%s,"result":2}`, m.ID)
		case "stray":
			s.send(`{"jsonrpc":"2.0","id":99999,"result":2}`)
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
		case "die":
			return s.Code
		case "half":
			io.WriteString(s.out, "Content-Length: 100\r\n\r\n{\"jsonrpc\":")
			return s.Code
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
		case "batch":
			s.send(`[{"jsonrpc":"2.0","id":1,"result":1}]`)
		default:
			s.fault("an unknown method: " + m.Method)
		}
	}
}

// ask asks the client something, and answers asker, if there is one, with what it answers.
func (s *Server) ask(asker json.RawMessage) {
	s.mu.Lock()
	s.nextID++
	id := `"q` + strconv.Itoa(s.nextID) + `"`
	s.asked[id] = asker
	s.mu.Unlock()
	if asker == nil {
		asker = json.RawMessage("null")
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"method":"client/ask","params":{"for":%s}}`, id, asker)
}

func (s *Server) send(format string, args ...any) {
	body := fmt.Sprintf(format, args...)
	fmt.Fprintf(s.out, "Content-Length: %d\r\n\r\n%s", len(body), body)
}

func (s *Server) fault(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, text)
}

// Faults returns what the client has done wrong.
func (s *Server) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// Seen returns what has been received.
func (s *Server) Seen() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// read reads a message as strictly as it can: whoever interleaves two of them is found out.
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
