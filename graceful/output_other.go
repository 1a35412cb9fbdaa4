//go:build !(linux || darwin || freebsd)

package graceful

// canDetectLostOutput reports whether isOutputLost works on this system.
const canDetectLostOutput = false

func isOutputLost() bool { return false }
