// Package app gives a scope to others.
package app

import "github.com/swansong-go/swansong/ctxshutdown"

type App struct{ Scope *ctxshutdown.Swansong }
