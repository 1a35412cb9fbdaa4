package output

import "path/filepath"

// Streams are the names of the two streams that a process prints to: its stdout and its stderr.
var Streams = [2]string{"out", "err"}

// FIFOPath returns the path of the named pipe for a stream of a process that may outlive its
// launcher. dir is the directory of the launcher.
func FIFOPath(dir, id, stream string) string { return filepath.Join(dir, id+"."+stream) }
