module github.com/swansong-go/swansong/internal/histories

go 1.25

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/swansong-go/swansong v0.0.0
	go.uber.org/goleak v1.3.0
)
