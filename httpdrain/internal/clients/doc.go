// Package clients tests httpdrain with what people use around it: two websocket libraries and a router. It is a module of
// its own, so that nobody who imports httpdrain takes them on.
package clients
