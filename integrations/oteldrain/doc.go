// Package oteldrain exports a shutdown to OpenTelemetry. [Observe] reports the guards held by each
// scope, and how drains ended, as metrics. [Trace] reports a drain as a span.
//
//	stop, err := oteldrain.Observe(app, meterProvider)
//	end, err := oteldrain.Trace(app, tracerProvider)
//
// The metrics are
//
//	swansong.guard.count        {guard}      guards held by swansong.scope; "(other)" is the rest
//	swansong.guard.oldest_age   s            age of the oldest guard, if traced
//	swansong.scope.state        1            1 for the swansong.state that the scope is in
//	swansong.drain.count        {drain}      by graceful.Run, by swansong.outcome: clean, forced, abandoned
//	swansong.guard.late         {guard}      guards released after Force or abandonment
//	swansong.guard.abandoned    {guard}      guards still held when a drain was abandoned
//	swansong.drain.extensions   {extension}  extensions of a drain that were granted
//	swansong.drain.longest      s            how long the longest drain took
//	swansong.http.drain.count   {drain}      by httpdrain.Serve, by swansong.outcome: clean, cut_short
//	swansong.http.cut           {request}    requests and hijacked connections cut short by Force
//	swansong.http.silent        {connection} connections closed by a drain in mid-header
//	swansong.http.refused       {request}    requests answered with 503 by a draining server
//
// The package does not use the global providers, and does not flush the given ones. End the span
// first, then shut the providers down, with a context that outlives the drain.
package oteldrain
