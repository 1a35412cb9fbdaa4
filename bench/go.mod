module github.com/swansong-go/swansong/bench

go 1.25

require (
	github.com/google/go-cmp v0.7.0
	github.com/oklog/run v1.2.0
	github.com/sourcegraph/conc v0.3.0
	github.com/sourcegraph/jsonrpc2 v0.2.1
	github.com/swansong-go/swansong v0.0.0
	github.com/thejerf/suture/v4 v4.0.6
	golang.org/x/sync v0.19.0
	gopkg.in/tomb.v2 v2.0.0-20161208151619-d5d1b5820637
	k8s.io/apimachinery v0.34.2
)

require (
	go.uber.org/atomic v1.7.0 // indirect
	go.uber.org/multierr v1.9.0 // indirect
	golang.org/x/net v0.38.0 // indirect
)
