package client

import (
	"net"
	"os"
	"time"
)

// notifySystemd sends a message to the socket named by NOTIFY_SOCKET; see sd_notify(3). It sends
// none to a launcher, which the process notifies by calls. It ignores errors, because the service
// works without the notification.
func (l *Lifecycle) notifySystemd(message string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" || l.launcher != nil {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	conn.Write([]byte(message))
}
