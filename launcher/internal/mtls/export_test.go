package mtls

import "crypto/tls"

// Config is what the next handshake is made with.
func (id *Identity) Config() *tls.Config { return id.config() }
