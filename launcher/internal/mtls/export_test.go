package mtls

import "crypto/tls"

// Config returns the TLS configuration that the next handshake uses.
func (id *Identity) Config() *tls.Config {
	cfg, err := id.config()
	if err != nil {
		panic(err)
	}
	return cfg
}
