package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swansong-go/swansong/internal/figures"
)

// minRatio is the least acceptable throughput, as a fraction of the throughput of net/http alone.
const minRatio = 0.97

// ratio formats the median and the quartiles of ratios. It marks a median that is below minRatio
// when rounded to the digits that are printed.
func ratio(all []float64) string {
	return mark(figures.Median(all), fmt.Sprintf(" (%.3f–%.3f)", figures.Quantile(all, .25), figures.Quantile(all, .75)))
}

func mark(r float64, spread string) string {
	cell := fmt.Sprintf("**%.3f**", r) + spread
	if math.Round(1000*r) < math.Round(1000*minRatio) {
		cell += ", **missed**"
	}
	return cell
}

// geometricMean combines the medians of all loads, the ways in which clients send requests, into
// one number. The median of a single load varies too much between runs.
func geometricMean(medians []float64) float64 {
	product := 1.0
	for _, m := range medians {
		product *= m
	}
	return math.Pow(product, 1/float64(len(medians)))
}

// throughput measures the requests per second of clients with keep-alive connections.
func throughput(w io.Writer, rounds int) {
	const slice = 25 * time.Millisecond
	fmt.Fprintf(w, "\n## Throughput\n\nRequests a second: medians of %d interleaved rounds of %v, 16 connections, clients on the same machine.\nA ratio below %v is marked *missed*. The processor time is that of a request, including client and kernel, relative to\nnet/http. It varies less than the throughput, because other load on the machine does not change it.\n\n| load | httpdrain | net/http | ratio (middle half) | processor time | allocations | of net/http |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n", rounds, slice, minRatio)
	small := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	type order struct {
		ID    int      `json:"id"`
		Items []string `json:"items"`
	}
	encoding := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		list := make([]order, 10)
		for i := range list {
			list[i] = order{i, []string{"a feather", "a swan", "a song"}}
		}
		json.NewEncoder(w).Encode(list)
	})
	body := bytes.Repeat([]byte("x"), 16<<10)
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
	var medians, cpuMedians []float64
	for _, load := range []struct {
		name string
		srv  func() *http.Server
		conf *tls.Config
		h2   string // name of the protocol if it is HTTP/2; otherwise empty
	}{
		{"HTTP/1.1, 2 bytes", func() *http.Server { return plain(small) }, nil, ""},
		{"HTTP/1.1, ten orders as JSON", func() *http.Server { return plain(encoding) }, nil, ""},
		{"HTTP/1.1, 16 KiB", func() *http.Server { return plain(large) }, nil, ""},
		{"HTTP/1.1 over TLS, 2 bytes", func() *http.Server { return secure(small) }, insecure, ""},
		{"h2c, 2 bytes", func() *http.Server { return cleartext2(small) }, nil, "h2c"},
		{"HTTP/2 over TLS, 2 bytes", func() *http.Server { return secure(small) }, nil, "h2"},
	} {
		run := map[string]func(time.Duration) (float64, time.Duration){}
		var ends []func()
		for _, how := range ways {
			w := serve(how, load.srv())
			run[how] = generator(w, load.conf, load.h2, &ends)
			ends = append(ends, func() { w.stop(); <-w.done })
		}
		rates, allocs, cpu := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
		var ratios, cpuRatios []float64
		for i, order := range figures.Rounds(rounds, ways...) {
			for _, how := range order {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				used := figures.CPUTime()
				requests, took := run[how](slice)
				used = figures.CPUTime() - used
				runtime.ReadMemStats(&after)
				rates[how] = append(rates[how], requests/took.Seconds())
				cpu[how] = append(cpu[how], float64(used)/requests)
				allocs[how] = append(allocs[how], float64(after.Mallocs-before.Mallocs)/requests)
			}
			ratios = append(ratios, rates[httpdrainServe][i]/rates[netHTTP][i])
			cpuRatios = append(cpuRatios, cpu[httpdrainServe][i]/cpu[netHTTP][i])
		}
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %s | %.3f | %.1f | %.1f |\n", load.name, figures.Median(rates[httpdrainServe]), figures.Median(rates[netHTTP]),
			ratio(ratios), figures.Median(cpuRatios), figures.Median(allocs[httpdrainServe]), figures.Median(allocs[netHTTP]))
		medians, cpuMedians = append(medians, figures.Median(ratios)), append(cpuMedians, figures.Median(cpuRatios))
		for _, end := range ends {
			end()
		}
	}
	fmt.Fprintf(w, "| all, geometric mean | | | %s | %.3f | | |\n", mark(geometricMean(medians), ""), geometricMean(cpuMedians))
}

const get = "GET / HTTP/1.1\r\nHost: test\r\n\r\n"

// generator returns a function that sends requests for about the given time, and returns their
// number and the exact time. It allocates the same for both servers, and nothing on HTTP/1.
func generator(w *running, config *tls.Config, h2 string, ends *[]func()) func(time.Duration) (requests float64, took time.Duration) {
	const conns = 16
	var each []func()
	for range conns {
		if h2 != "" {
			c, url := client(w, h2)
			each = append(each, func() {
				resp, err := c.Get(url)
				if err != nil {
					panic(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			})
			*ends = append(*ends, c.CloseIdleConnections)
			continue
		}
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			panic(err)
		}
		if config != nil {
			conn = tls.Client(conn, config)
		}
		buf := make([]byte, 64<<10)
		request := []byte(get)
		io.WriteString(conn, get)
		size := 0 // length of a response, which is the same for all responses
		for n, want := 0, -1; want < 0 || n < want; {
			m, err := conn.Read(buf[n:])
			if err != nil {
				panic(err)
			}
			n += m
			if i := bytes.Index(buf[:n], []byte("\r\n\r\n")); i >= 0 && want < 0 {
				resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(buf[:n])), nil)
				if err != nil {
					panic(err)
				}
				want = i + 4 + int(resp.ContentLength)
				if resp.ContentLength < 0 { // the response is chunked
					for !bytes.HasSuffix(buf[:n], []byte("\r\n0\r\n\r\n")) {
						m, err := conn.Read(buf[n:])
						if err != nil {
							panic(err)
						}
						n += m
					}
					want = n
				}
			}
			size = n
		}
		each = append(each, func() {
			conn.Write(request)
			if _, err := io.ReadFull(conn, buf[:size]); err != nil {
				panic(err)
			}
		})
		*ends = append(*ends, func() { conn.Close() })
	}
	return func(d time.Duration) (float64, time.Duration) {
		var wg sync.WaitGroup
		var n atomic.Int64
		began := time.Now()
		for _, f := range each {
			wg.Go(func() {
				for time.Since(began) < d {
					f()
					n.Add(1)
				}
			})
		}
		wg.Wait()
		return float64(n.Load()), time.Since(began)
	}
}
