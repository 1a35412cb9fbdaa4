package http3drain

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/quic-go/quic-go"
)

// An HTTP/3 server ends a connection without refusing a request by two GOAWAY frames: the first
// with the largest stream id, the second, when the client has had time to read the first, with the
// last id that was accepted (RFC 9114, section 5.2). The http3 package sends one GOAWAY, as part of
// Server.Shutdown, and refuses requests that are on their way. Its RawServerConn leaves the streams
// to the caller, but it keeps the control stream, on which the frames have to be sent, to itself.
//
// So this file finds the control stream among the streams of the [quic.Conn], by reflection. It
// also counts the streams that the client has not acknowledged completely, for which package quic
// has no function either. Both read unexported fields. Before the first connection is served, the
// types of these fields are checked, so [Serve] returns an error if a version of quic-go has other
// fields.

// A streamTable is the name of a field of quic.Conn.streamsMap. The value of that field is a struct
// with the streams of one kind: a map from the ids to the streams, and a mutex that guards the map.
type streamTable string

const (
	sentByServer   streamTable = "outgoingUniStreams"  // one of these streams is the control stream
	openedByClient streamTable = "incomingBidiStreams" // each of these streams carries a request
)

// checkInternals returns an error if package quic does not have the fields that this file reads.
var checkInternals = sync.OnceValue(func() error {
	err := fmt.Errorf("http3drain: Serve: this version of quic-go lacks unexported fields that http3drain reads, so the control stream of a connection cannot be found; " +
		"use the version of quic-go that the go.mod of http3drain requires")
	streams, ok := reflect.TypeFor[quic.Conn]().FieldByName("streamsMap")
	if !ok || streams.Type.Kind() != reflect.Pointer || streams.Type.Elem().Kind() != reflect.Struct {
		return err
	}
	for _, table := range []streamTable{sentByServer, openedByClient} {
		f, ok := streams.Type.Elem().FieldByName(string(table))
		if !ok || f.Type.Kind() != reflect.Pointer || f.Type.Elem().Kind() != reflect.Struct {
			return err
		}
		mutex, ok := f.Type.Elem().FieldByName("mutex")
		if !ok || mutex.Type != reflect.TypeFor[sync.RWMutex]() {
			return err
		}
		byID, ok := f.Type.Elem().FieldByName("streams")
		if !ok || byID.Type.Kind() != reflect.Map || byID.Type.Key() != reflect.TypeFor[quic.StreamID]() {
			return err
		}
		if table == sentByServer && byID.Type.Elem() != reflect.TypeFor[*quic.SendStream]() {
			return err
		}
	}
	return nil
})

// read calls f with one of the maps of conn that contain its streams. The value of t is the name of
// the map's field. read holds the mutex of the map during the call.
func (t streamTable) read(conn *quic.Conn, f func(streams reflect.Value)) {
	table := reflect.ValueOf(conn).Elem().FieldByName("streamsMap").Elem().FieldByName(string(t)).Elem()
	mutex := (*sync.RWMutex)(table.FieldByName("mutex").Addr().UnsafePointer())
	mutex.RLock()
	defer mutex.RUnlock()
	f(table.FieldByName("streams"))
}

// newestStream returns the incomplete stream that the server has opened last on conn, or nil if
// there is none.
func newestStream(conn *quic.Conn) (newest *quic.SendStream) {
	sentByServer.read(conn, func(streams reflect.Value) {
		for it := streams.MapRange(); it.Next(); {
			s := (*quic.SendStream)(it.Value().UnsafePointer())
			if newest == nil || s.StreamID() > newest.StreamID() {
				newest = s
			}
		}
	})
	return newest
}

// countIncomplete returns the number of incomplete streams of the client with an id below last. A
// stream is incomplete if the server has not answered, or the client has not acknowledged the whole
// response.
func countIncomplete(conn *quic.Conn, last quic.StreamID) (n int) {
	openedByClient.read(conn, func(streams reflect.Value) {
		for it := streams.MapRange(); it.Next(); {
			if quic.StreamID(it.Key().Int()) < last {
				n++
			}
		}
	})
	return n
}
