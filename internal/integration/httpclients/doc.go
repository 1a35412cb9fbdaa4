// Package httpclients tests httpdrain with two websocket libraries, a router, the conformance tests
// h2spec, and HTTP clients of other languages.
package httpclients
