package http3drain

// An Option configures a call of Serve. If an option is given twice, the last one counts. A nil
// Option is ignored.
type Option interface{ apply(*options) }

type options struct {
	name           string
	keepInLameDuck bool
}

type option func(*options)

func (f option) apply(o *options) { f(o) }

// WithName sets the name of the server's scope in reports and logs. The default is "http3". See
// [ctxshutdown.WithName].
func WithName(name string) Option {
	return option(func(o *options) { o.name = name })
}

// KeepInLameDuck makes the server leave its connections alone in the lame duck phase of the process
// (see [graceful.WithLameDuck]). By default, each client is told at a random time in the first half
// of the phase to open no more streams, so that it moves to another server while this one still
// works.
func KeepInLameDuck() Option {
	return option(func(o *options) { o.keepInLameDuck = true })
}

func newOptions(opts []Option) options {
	o := options{name: "http3"}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	return o
}
