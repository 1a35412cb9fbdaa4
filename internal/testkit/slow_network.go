package testkit

import (
	"net"
	"time"
)

// ConnectSlowly forwards bytes from a to b and from b to a, each with the given delay. It also
// forwards the end of each direction with that delay. It returns at once.
func ConnectSlowly(a, b net.Conn, delay time.Duration) {
	go forward(a, b, delay)
	go forward(b, a, delay)
}

// A packet is the data of one Read with its time, or the end of the stream if data is nil.
type packet struct {
	data    []byte
	arrives time.Time
}

func forward(from, to net.Conn, delay time.Duration) {
	line := make(chan packet, 10_000)
	go func() {
		defer close(line)
		for {
			buf := make([]byte, 4<<10)
			n, err := from.Read(buf)
			if n > 0 {
				line <- packet{buf[:n], time.Now().Add(delay)}
			}
			if err != nil {
				line <- packet{nil, time.Now().Add(delay)}
				return
			}
		}
	}()
	for p := range line {
		time.Sleep(time.Until(p.arrives))
		if p.data == nil {
			to.Close()
			continue
		}
		to.Write(p.data)
	}
}
