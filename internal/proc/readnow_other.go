//go:build !unix

package proc

import "os"

// ReadNow reads from f. On this system the read blocks if there is nothing to read: a system
// without deadlines on pipes has no non-blocking read either.
func ReadNow(f *os.File, p []byte) (int, error) { return f.Read(p) }
