package mtls

import "crypto/tls"

// Config is what the next handshake is made with.
func (id *Identity) Config() *tls.Config {
	cfg, err := id.config()
	if err != nil {
		panic(err)
	}
	return cfg
}
