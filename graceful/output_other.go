//go:build !(linux || darwin || freebsd)

package graceful

// canDetectLostOutput reports whether isOutputLost and isTerminalLost work on this system.
const canDetectLostOutput = false

func isOutputLost() bool { return false }

func isTerminalLost() bool { return false }
