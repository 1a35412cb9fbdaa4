// Package app provides a scope to other packages.
package app

import "github.com/swansong-go/swansong/ctxshutdown"

type App struct{ Scope *ctxshutdown.Swansong }
