module github.com/swansong-go/swansong/httpdrain/internal/clients

go 1.25

require (
	github.com/coder/websocket v1.8.14
	github.com/go-chi/chi/v5 v5.2.3
	github.com/google/go-cmp v0.7.0
	github.com/gorilla/websocket v1.5.3
	github.com/swansong-go/swansong v0.0.0
	go.uber.org/goleak v1.3.0
)
