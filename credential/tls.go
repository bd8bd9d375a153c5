package credential

import "crypto/tls"

// TLS makes the settings of one connection, from files as they are now; nil: no TLS. The settings are the caller's. The
// error is an [Error]: a later attempt may pass.
type TLS func() (*tls.Config, error)

// For returns settings that verify a host, where they name no other.
func (t TLS) For(host string) TLS {
	if t == nil {
		return nil
	}
	return func() (*tls.Config, error) {
		c, err := t()
		if err == nil && c.ServerName == "" {
			c.ServerName = host
		}
		return c, err
	}
}
