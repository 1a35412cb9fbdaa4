// Swansongvet finds mistakes in the use of package ctxshutdown. Package vet describes the checks.
//
//	swansongvet ./...                                          report mistakes
//	swansongvet -fix ./...                                     report them, and apply the suggested fixes
//	swansongvet help [analyzer]                                describe the checks
//	go vet -vettool=$(which swansongvet) ./...                 run under go vet, which caches the results
//	go vet -vettool=$(which swansongvet) -softctx ./...        run one check
//	go vet -vettool=$(which swansongvet) -softctx=false ./...  run all checks but one
package main

import (
	"github.com/swansong-go/swansong/vet"
	"golang.org/x/tools/go/analysis/multichecker"
)

func main() { multichecker.Main(vet.Analyzers()...) }
