module github.com/swansong-go/swansong/integrations/http3drain

go 1.26.0

require (
	github.com/quic-go/quic-go v0.65.0
	github.com/swansong-go/swansong v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/quic-go/qpack v0.6.0 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)
