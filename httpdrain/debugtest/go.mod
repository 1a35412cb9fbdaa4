module github.com/swansong-go/swansong/httpdrain/debugtest

go 1.25

require (
	github.com/google/go-cmp v0.7.0
	github.com/swansong-go/swansong v0.0.0
	go.uber.org/goleak v1.3.0
)
