// Package httpclients tests httpdrain with two websocket libraries and a router.
package httpclients
