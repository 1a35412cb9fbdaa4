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
	// A client ends after this number of refused connections in a row, because the server has then
	// ended.
	maxRefusals = 3
	// ioTimeout limits how long a client waits for a connection or for a response, so that the
	// program ends even if the server hangs.
	ioTimeout = 15 * time.Second
	// lightPause is the time between two requests of a client with a light load.
	lightPause = 50 * time.Millisecond
)

// A tally counts what the clients sent and received.
type tally struct {
	Started     int   // requests of which at least one byte was sent
	Answered    int   // requests with a complete response, 503 included
	Lost        int   // requests without a complete response
	Refused     int   // connections that could not be established, so that nothing was sent
	Unavailable int   // requests that were answered with 503
	Orders      []int // IDs of the orders that the server has acknowledged
}

func (t *tally) add(u tally) {
	t.Started += u.Started
	t.Answered += u.Answered
	t.Lost += u.Lost
	t.Refused += u.Refused
	t.Unavailable += u.Unavailable
	t.Orders = append(t.Orders, u.Orders...)
}

// generateLoad runs the clients until the server has ended, and then prints their tally as JSON. It
// runs in a process of its own. The clients implement HTTP/1.1 themselves, because a client library
// would hide a lost request by sending it again.
func generateLoad(addr string) error {
	var (
		mu    sync.Mutex
		total tally
		wg    sync.WaitGroup
	)
	light, pause := os.Getenv(lightLoadVar) != "", time.Duration(0)
	if light {
		pause = lightPause // with -open the program runs for minutes, and must not keep the processors busy
	}
	for _, request := range requests(light) {
		wg.Go(func() {
			c := client{addr: addr, request: request, pause: pause}
			c.run()
			mu.Lock()
			defer mu.Unlock()
			total.add(c.tally)
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(total)
}

// requests returns one request for each client, which sends it again and again. With a light load
// there are few clients, and some of them request reports.
func requests(light bool) (all []string) {
	orders, streams, reports := orderClients, streamClients, 0
	if light {
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

// A client sends its request repeatedly over a kept-alive connection. If a request gets no
// response, the client does not send that request again.
type client struct {
	tally
	addr    string
	request string
	pause   time.Duration // time between two requests
}

func (c *client) run() {
	for refusals := 0; refusals < maxRefusals; {
		conn, err := net.DialTimeout("tcp", c.addr, ioTimeout)
		if err != nil {
			c.Refused++
			refusals++
			time.Sleep(5 * time.Millisecond)
			continue
		}
		refusals = 0
		c.sendRequests(conn)
		conn.Close()
	}
}

// sendRequests sends requests over conn until the server closes it.
func (c *client) sendRequests(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		conn.SetDeadline(time.Now().Add(ioTimeout))
		if n, err := io.WriteString(conn, c.request); err != nil {
			if n > 0 {
				c.Started++
				c.Lost++
			}
			return
		}
		c.Started++
		resp, err := readResponse(in)
		if err != nil {
			c.Lost++
			return
		}
		c.Answered++
		switch resp.status {
		case http.StatusServiceUnavailable:
			c.Unavailable++
		case http.StatusCreated:
			if id, err := strconv.Atoi(strings.TrimSpace(resp.body)); err == nil {
				c.Orders = append(c.Orders, id)
			}
		}
		time.Sleep(c.pause)
		if !resp.keepAlive {
			return
		}
	}
}

// A response contains the parts of an HTTP response that a client uses.
type response struct {
	status    int
	body      string
	keepAlive bool // the server keeps the connection open
}

// readResponse reads one complete response. If any part of it is missing, it returns an error.
func readResponse(in *bufio.Reader) (r response, err error) {
	line, err := readLine(in)
	if err != nil {
		return r, err
	}
	proto, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	if r.status, err = strconv.Atoi(code); err != nil || proto != "HTTP/1.1" {
		return r, fmt.Errorf("not an HTTP/1.1 response: %q", line)
	}
	r.keepAlive = true
	length, chunked := int64(-1), false
	for {
		if line, err = readLine(in); err != nil {
			return r, err
		}
		if line == "" {
			break
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(key) {
		case "connection":
			r.keepAlive = !strings.EqualFold(value, "close")
		case "transfer-encoding":
			chunked = strings.EqualFold(value, "chunked")
		case "content-length":
			if length, err = strconv.ParseInt(value, 10, 64); err != nil || length < 0 {
				return r, fmt.Errorf("invalid content length: %q", line)
			}
		}
	}
	switch {
	case chunked:
		r.body, err = readChunks(in)
	case length >= 0:
		var b strings.Builder
		_, err = io.CopyN(&b, in, length)
		r.body = b.String()
	default:
		err = errors.New("response without a length: it could be truncated")
	}
	return r, err
}

// readChunks reads a body with chunked transfer encoding.
func readChunks(in *bufio.Reader) (string, error) {
	var b strings.Builder
	for size := int64(-1); size != 0; {
		line, err := readLine(in)
		if err != nil {
			return "", err
		}
		if size, err = strconv.ParseInt(line, 16, 32); err != nil || size < 0 {
			return "", fmt.Errorf("invalid chunk size: %q", line)
		}
		if _, err = io.CopyN(&b, in, size); err != nil {
			return "", err
		}
		if line, err = readLine(in); err != nil || line != "" {
			return "", errors.Join(err, errors.New("chunk without its final line end"))
		}
	}
	return b.String(), nil
}

// readLine reads a line and returns it without its line end. A line that is cut short is an error.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return strings.TrimRight(line, "\r\n"), err
}
