// Command batch counts the lines of its standard input, and saves their number at the end of the
// input or when it is stopped. A read that waits for the terminal ends at the first ^C.
//
//	go run ./examples/flush/batch -out lines.txt
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/swansong-go/swansong/ctxshutdown"
	"github.com/swansong-go/swansong/examples/flush/store"
)

func main() { store.Main(count) }

func count(s *ctxshutdown.Swansong, file string) error {
	in := ctxshutdown.NewReader(s, os.Stdin)
	defer in.Close()
	fmt.Println("ready")
	lines := bufio.NewScanner(in)
	n := 0
	for lines.Scan() {
		n++
	}
	// After the stop, the Reader returns io.EOF, for which the Err of a Scanner is nil.
	return errors.Join(lines.Err(), store.Save(s.Work(), file, n))
}
