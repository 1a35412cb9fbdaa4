package notify

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/swansong-go/swansong/launcher/internal/peer"
)

// A Socket receives the messages of one process and of what it has started.
type Socket struct {
	conn   *net.UnixConn
	gate   Gate
	allows func(pid int) bool
	handle func(Message)

	reading sync.Mutex // held while a message is read and handled, so that messages keep their order
}

const (
	maxMessage = 4 << 10
	maxFiles   = 64 // maximum number of files with one message; the kernel closes further ones
	// Maximum number of messages in one call of Drain. The kernel queues fewer messages than this
	// at a time: see the sysctl net.unix.max_dgram_qlen.
	maxDrained = 1000
)

// Listen makes the socket at this path, and replaces one that exists there. If inherited is not
// nil, it uses that socket instead. Each message is read and handled between Enter and Leave of the
// gate. For each message, the Socket calls the function allows with the pid of the sender, which
// the kernel has checked. The function says whether that process may send messages. By then the
// sender may have ended. The function handle is called with one message at a time.
func Listen(path string, inherited *os.File, gate Gate, allows func(pid int) bool, handle func(Message)) (*Socket, error) {
	if inherited != nil {
		conn, err := net.FilePacketConn(inherited)
		if err != nil {
			return nil, fmt.Errorf("notify: %w", err)
		}
		return &Socket{conn: conn.(*net.UnixConn), gate: gate, allows: allows, handle: handle}, nil
	}
	if len(path) > peer.MaxPath {
		return nil, fmt.Errorf("notify: the path of a socket can have at most %d bytes, and this one has %d: %s; use a directory with a shorter path", peer.MaxPath, len(path), path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		os.Remove(path)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		var failure error
		err = raw.Control(func(fd uintptr) { failure = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1) })
		err = errors.Join(err, failure, os.Chmod(path, 0o600))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("notify: %w", err)
	}
	return &Socket{conn: conn, gate: gate, allows: allows, handle: handle}, nil
}

// Serve handles messages until Close. The caller runs it on a goroutine of its own.
func (s *Socket) Serve() {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return
	}
	for {
		// Wait for a message without holding the lock reading, so that other goroutines can call
		// Drain.
		if raw.Read(func(fd uintptr) bool { return isReadable(fd) }) != nil {
			return
		}
		s.Drain()
	}
}

// Drain handles the messages that have arrived. It returns when there are no more, or after
// maxDrained, so that a process that sends without end does not hold up the caller. A goroutine
// that learns something else about the process, such as its exit, calls Drain first. Then the
// messages that the process sent before its exit are handled before the exit.
func (s *Socket) Drain() {
	s.reading.Lock()
	defer s.reading.Unlock()
	for range maxDrained {
		if !s.receive() {
			return
		}
	}
}

// receive handles one message, if one has arrived. It returns false if there was none. A message
// that is too long or comes from a process that may not send is dropped without an error; receive
// returns true for it, too.
func (s *Socket) receive() bool {
	s.gate.Enter()
	defer s.gate.Leave()
	text, control := make([]byte, maxMessage+1), make([]byte, syscall.CmsgSpace(syscall.SizeofUcred)+syscall.CmsgSpace(maxFiles*4))
	var n, controlled int
	received := false
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return false
	}
	// Call Control and not Read: Read would wait for Serve, which is already waiting in a Read.
	raw.Control(func(fd uintptr) {
		n, controlled, _, _, err = syscall.Recvmsg(int(fd), text, control, syscall.MSG_DONTWAIT|syscall.MSG_CMSG_CLOEXEC)
		received = err == nil
	})
	if !received {
		return errors.Is(err, syscall.EINTR)
	}
	sender, files := parseControl(control[:controlled])
	if n <= maxMessage && sender > 0 && s.allows(sender) {
		s.handle(Parse(string(text[:n])))
	}
	// A sender that has sent BARRIER=1 waits until the file that came with the message is closed,
	// which says that its messages have been handled. The launcher does not implement FDSTORE=1,
	// with which a process asks to have files stored, so it closes all files.
	for _, fd := range files {
		syscall.Close(fd)
	}
	return true
}

// parseControl returns the pid of the sender, which the kernel has checked, and the files that came
// with the message.
func parseControl(control []byte) (sender int, files []int) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return 0, nil
	}
	for _, m := range messages {
		if cred, err := syscall.ParseUnixCredentials(&m); err == nil {
			sender = int(cred.Pid)
		}
		if fds, err := syscall.ParseUnixRights(&m); err == nil {
			files = append(files, fds...)
		}
	}
	return sender, files
}

// isReadable reports whether a message has arrived, or the socket cannot be read.
func isReadable(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_DONTWAIT|syscall.MSG_PEEK)
	return !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
}

// File returns a duplicate of the socket, for another program that goes on to use it.
func (s *Socket) File() (*os.File, error) { return s.conn.File() }

// Close ends Serve. The file of the socket stays.
func (s *Socket) Close() { s.conn.Close() }
