package testkit

import (
	"net"
	"time"
)

// ConnectSlowly passes what is written to a on to b, and the other way round, each time after delay.
// So does it with the end of each direction. It returns at once.
func ConnectSlowly(a, b net.Conn, delay time.Duration) {
	go forward(a, b, delay)
	go forward(b, a, delay)
}

// A packet is what was read at some time, or the end if data is nil.
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
