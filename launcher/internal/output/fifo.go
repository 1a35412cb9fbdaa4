package output

// Streams are the names of the two streams that a process prints to: its stdout and its stderr. A
// process that may outlive its launcher has a named pipe for each; see statefile.FileOf.
var Streams = [2]string{"out", "err"}
