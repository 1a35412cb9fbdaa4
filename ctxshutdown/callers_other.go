//go:build !amd64 && !arm64

package ctxshutdown

import "runtime"

func (at *site) fill() { runtime.Callers(4, at[:]) }
