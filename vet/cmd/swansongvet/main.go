// Swansongvet finds mistakes in the use of package ctxshutdown; see package vet.
//
//	swansongvet ./...                                  looks
//	swansongvet -fix ./...                             and mends what it safely can
//	swansongvet help [analyzer]                        says what it looks for
//	go vet -vettool=$(which swansongvet) ./...         the same under go vet, which remembers what it has seen
//	go vet -vettool=$(which swansongvet) -softctx ./...        one check alone
//	go vet -vettool=$(which swansongvet) -softctx=false ./...  all but one
package main

import (
	"github.com/swansong-go/swansong/vet"
	"golang.org/x/tools/go/analysis/multichecker"
)

func main() { multichecker.Main(vet.Analyzers()...) }
