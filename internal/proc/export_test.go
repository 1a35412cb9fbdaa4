package proc

// WithSignalOnWindows adds the signal to the exit of a process that was ended on Windows.
var WithSignalOnWindows = withSignalOnWindows
