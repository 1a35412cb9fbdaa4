// Command 1-bare is an HTTP service that does not handle signals.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	flag.Parse()
	http.HandleFunc("GET /hello", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(200 * time.Millisecond) // stands for a database query
		fmt.Fprintln(w, "hello")
	})
	log.Fatal(http.ListenAndServe(*addr, nil))
}
