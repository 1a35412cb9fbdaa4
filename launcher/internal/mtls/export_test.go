package mtls

import "crypto/tls"

// Config returns the configuration of the next handshake.
func (id *Identity) Config() *tls.Config {
	cfg, err := id.config()
	if err != nil {
		panic(err)
	}
	return cfg
}
