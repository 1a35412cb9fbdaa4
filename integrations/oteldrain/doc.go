// Package oteldrain tells OpenTelemetry how a program shuts down: [Observe] who holds guards and how drains ended, as
// metrics, and [Trace] one drain, as a span.
//
//	stop, err := oteldrain.Observe(app, meterProvider)
//	end, err := oteldrain.Trace(app, tracerProvider)
//
// The metrics are
//
//	swansong.guard.count        {guard}      guards held, by swansong.scope; what is not among the first few is "(other)"
//	swansong.guard.oldest_age   s            how long the oldest of them has been held, where traced
//	swansong.scope.state        1            1 for the swansong.state that the scope is in
//	swansong.drain.count        {drain}      drains that ended, by swansong.outcome: clean, forced or abandoned
//	swansong.guard.late         {guard}      guards released after somebody had given up on them
//	swansong.guard.abandoned    {guard}      guards still held when a drain was abandoned
//	swansong.drain.extensions   {extension}  extensions of a drain that were granted
//	swansong.drain.longest      s            how long the longest drain took
//	swansong.http.drain.count   {drain}      drains of HTTP servers that ended, by swansong.outcome: clean or cut_short
//	swansong.http.cut           {request}    requests and hijacked connections that a drain has cut off
//	swansong.http.silent        {connection} connections that a drain has closed in the middle of a header
//	swansong.http.refused       {request}    requests that were answered by 503 while a server drained
//
// The providers are the caller's: the package neither reads nor sets a global one. It does not flush them either. End the
// span first and shut the providers down last, on a context that outlives the drain.
package oteldrain
