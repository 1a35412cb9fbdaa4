module github.com/swansong-go/swansong/bench

go 1.26

require (
	github.com/dop251/goja v0.0.0-20250309171923-bcd7cc6bf64c
	github.com/dop251/goja_nodejs v0.0.0-20260212111938-1f56ff5bcf14
	github.com/gammazero/workerpool v1.1.3
	github.com/google/go-cmp v0.7.0
	github.com/oklog/run v1.2.0
	github.com/sourcegraph/conc v0.3.0
	github.com/sourcegraph/jsonrpc2 v0.2.1
	github.com/swansong-go/swansong v0.0.0
	github.com/thejerf/suture/v4 v4.0.6
	go.uber.org/goleak v1.3.0
	golang.org/x/exp/jsonrpc2 v0.0.0-20260709172345-9ea1abe57597
	golang.org/x/sync v0.19.0
	gopkg.in/tomb.v2 v2.0.0-20161208151619-d5d1b5820637
	k8s.io/apimachinery v0.34.2
)

require (
	github.com/alitto/pond/v2 v2.7.1
	github.com/dlclark/regexp2 v1.11.4 // indirect
	github.com/gammazero/deque v0.2.0 // indirect
	github.com/go-sourcemap/sourcemap v2.1.4+incompatible // indirect
	github.com/google/pprof v0.0.0-20240727154555-813a5fbdbec8 // indirect
	github.com/panjf2000/ants/v2 v2.12.1
	go.uber.org/atomic v1.9.0 // indirect
	go.uber.org/multierr v1.9.0 // indirect
	golang.org/x/exp/event v0.0.0-20260611194520-c48552f49976 // indirect
	golang.org/x/net v0.38.0 // indirect
	golang.org/x/text v0.23.0 // indirect
	golang.org/x/xerrors v0.0.0-20240903120638-7835f813f4da // indirect
)
