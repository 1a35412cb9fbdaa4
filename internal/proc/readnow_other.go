//go:build !unix

package proc

import "os"

// ReadNow reads from f. Systems without deadlines on pipes have no non-blocking read either.
func ReadNow(f *os.File, p []byte) (int, error) { return f.Read(p) }
