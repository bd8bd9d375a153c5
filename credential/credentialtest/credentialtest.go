// Package credentialtest has settings for the tests of those that connect.
package credentialtest

import (
	"crypto/tls"

	"github.com/freshet/freshet/credential"
)

// Fixed returns settings that never change; nil for none.
func Fixed(c *tls.Config) credential.TLS {
	if c == nil {
		return nil
	}
	return func() (*tls.Config, error) { return c.Clone(), nil }
}
