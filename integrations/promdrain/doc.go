// Package promdrain shows Prometheus how a program shuts down: who holds guards while it does, and how drains ended.
//
//	c, err := promdrain.NewScopeCollector(app)
//	reg.MustRegister(c, promdrain.NewProcessCollector())
//
// The metrics are
//
//	swansong_guards{scope}                    guards held, by scope path; what is not among the first few is "(other)"
//	swansong_guard_oldest_age_seconds{scope}  how long the oldest of them has been held, where traced
//	swansong_scope_state{state}               1 for the state that the scope is in
//	swansong_drains_total{outcome}            drains that ended clean, forced or abandoned
//	swansong_guards_late_total                guards released after somebody had given up on them
//	swansong_guards_abandoned_total           guards still held when a drain was abandoned
//	swansong_drain_extensions_total           extensions of a drain that were granted
//	swansong_drain_longest_seconds            how long the longest drain took
//	swansong_http_drains_total{outcome}       drains of HTTP servers that ended clean or cut_short
//	swansong_http_cut_total                   requests and hijacked connections that a drain has cut off
//	swansong_http_silent_total                connections that a drain has closed in the middle of a header
//	swansong_http_refused_total               requests that were answered by 503 while a server drained
//
// A program that drains is scraped until its listener closes, and not afterwards: keep the port of /metrics open until
// the end, outside of the scope that it shows, or the last scrapes miss what they are for.
package promdrain
