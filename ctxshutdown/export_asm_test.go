//go:build amd64 || arm64

package ctxshutdown

// FramePointers is for tests that make up frames.
var FramePointers = framePointers
