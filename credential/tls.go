package credential

import "crypto/tls"

// TLS makes the settings of one connection, from files as they are now; nil: no TLS. The settings are the caller's. The
// error is an [Error]: a later attempt may pass.
type TLS func() (*tls.Config, error)
