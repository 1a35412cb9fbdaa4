package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	orderClients  = 50
	streamClients = 4
	// tries is how often a client finds nobody at the address before it goes home.
	tries = 3
	// patience bounds everything a client waits for, so that a run ends whatever the server does.
	patience = 15 * time.Second
)

// A tally is what clients saw.
type tally struct {
	Started     int   // requests of which bytes were sent on an established connection
	Answered    int   // of those, complete responses, 503s among them
	Lost        int   // of those, no complete response
	Refused     int   // connections that could not be made: nothing was sent
	Unavailable int   // 503s
	Orders      []int // orders that were acknowledged
}

func (t *tally) add(u tally) {
	t.Started += u.Started
	t.Answered += u.Answered
	t.Lost += u.Lost
	t.Refused += u.Refused
	t.Unavailable += u.Unavailable
	t.Orders = append(t.Orders, u.Orders...)
}

// generateLoad runs the clients until the server is gone, and prints the tally. It is a process of its own, and speaks
// HTTP/1.1 by hand: a client library would hide a loss by sending the request again.
func generateLoad(addr string) error {
	var (
		mu    sync.Mutex
		total tally
		wg    sync.WaitGroup
	)
	for _, request := range requests(os.Getenv(calmVar) != "") {
		wg.Go(func() {
			c := client{addr: addr, request: request}
			c.run()
			mu.Lock()
			defer mu.Unlock()
			total.add(c.tally)
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(total)
}

// requests returns what each client asks for, again and again.
func requests(calm bool) (all []string) {
	orders, streams, reports := orderClients, streamClients, 0
	if calm {
		orders, streams, reports = 3, 2, 3
	}
	for i := range orders {
		all = append(all, orderRequest(i))
	}
	for range streams {
		all = append(all, "GET /stream HTTP/1.1\r\nHost: shop\r\n\r\n")
	}
	for range reports {
		all = append(all, "GET /report HTTP/1.1\r\nHost: shop\r\n\r\n")
	}
	return all
}

func orderRequest(client int) string {
	body := fmt.Sprintf(`{"item": "swan feather, for client %d"}`, client)
	return fmt.Sprintf("POST /orders HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// A client sends one request after another over a connection that it keeps, and never sends one twice.
type client struct {
	tally
	addr    string
	request string
}

func (c *client) run() {
	for misses := 0; misses < tries; {
		conn, err := net.DialTimeout("tcp", c.addr, patience)
		if err != nil {
			c.Refused++
			misses++
			time.Sleep(5 * time.Millisecond)
			continue
		}
		misses = 0
		c.use(conn)
		conn.Close()
	}
}

// use sends requests over conn until the server ends it.
func (c *client) use(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		conn.SetDeadline(time.Now().Add(patience))
		if n, err := io.WriteString(conn, c.request); err != nil {
			if n > 0 {
				c.Started++
				c.Lost++
			}
			return
		}
		c.Started++
		status, keep, body, err := readResponse(in)
		if err != nil {
			c.Lost++
			return
		}
		c.Answered++
		switch status {
		case http.StatusServiceUnavailable:
			c.Unavailable++
		case http.StatusCreated:
			if id, err := strconv.Atoi(strings.TrimSpace(body)); err == nil {
				c.Orders = append(c.Orders, id)
			}
		}
		if !keep {
			return
		}
	}
}

// readResponse reads one response to its very end. Whatever is missing is an error.
func readResponse(in *bufio.Reader) (status int, keep bool, body string, err error) {
	line, err := readLine(in)
	if err != nil {
		return 0, false, "", err
	}
	proto, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	if status, err = strconv.Atoi(code); err != nil || proto != "HTTP/1.1" {
		return 0, false, "", fmt.Errorf("not a response: %q", line)
	}
	keep, length, chunked := true, -1, false
	for {
		if line, err = readLine(in); err != nil {
			return 0, false, "", err
		}
		if line == "" {
			break
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(key) {
		case "connection":
			keep = !strings.EqualFold(value, "close")
		case "transfer-encoding":
			chunked = strings.EqualFold(value, "chunked")
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil || length < 0 {
				return 0, false, "", fmt.Errorf("a bad length: %q", line)
			}
		}
	}
	var b strings.Builder
	switch {
	case chunked:
		for size := int64(-1); size != 0; {
			if line, err = readLine(in); err != nil {
				return 0, false, "", err
			}
			if size, err = strconv.ParseInt(line, 16, 32); err != nil || size < 0 {
				return 0, false, "", fmt.Errorf("not a chunk: %q", line)
			}
			if _, err = io.CopyN(&b, in, size); err != nil {
				return 0, false, "", err
			}
			if line, err = readLine(in); err != nil || line != "" {
				return 0, false, "", errors.Join(err, errors.New("a chunk without its end"))
			}
		}
	case length >= 0:
		if _, err = io.CopyN(&b, in, int64(length)); err != nil {
			return 0, false, "", err
		}
	default:
		return 0, false, "", errors.New("a response without a length cannot be told from a truncated one")
	}
	return status, keep, b.String(), nil
}

func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return strings.TrimRight(line, "\r\n"), err
}
