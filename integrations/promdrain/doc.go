// Package promdrain exports Prometheus metrics of a shutdown: the guards held by each scope, and
// how drains ended.
//
//	c, err := promdrain.NewScopeCollector(app)
//	reg.MustRegister(c, promdrain.NewProcessCollector())
//
// The metrics are
//
//	swansong_guards{scope}                    guards held by scope path; "(other)" is the rest
//	swansong_guard_oldest_age_seconds{scope}  age of the oldest guard, if traced
//	swansong_scope_state{state}               1 for the state that the scope is in
//	swansong_drains_total{outcome}            drains by graceful.Run: clean, forced or abandoned
//	swansong_guards_late_total                guards released after Force or abandonment
//	swansong_guards_abandoned_total           guards still held when a drain was abandoned
//	swansong_drain_extensions_total           extensions of a drain that were granted
//	swansong_drain_longest_seconds            how long the longest drain took
//	swansong_http_drains_total{outcome}       drains by httpdrain.Serve: clean or cut_short
//	swansong_http_cut_total                   requests and hijacked connections cut short by Force
//	swansong_http_silent_total                connections closed by a drain in mid-header
//	swansong_http_refused_total               requests answered with 503 by a draining server
//
// Serve /metrics from a server that stays open until the end of the drain, outside of the scope
// that it reports. Otherwise its listener is closed at the stop, and the drain is not scraped.
package promdrain
