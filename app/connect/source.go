package connect

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/event"
)

// Source returns how to reach the source, and what to read of it.
func Source(c *config.Config) canal.Options {
	o := canal.Options{
		Source: c.Source.Name, Address: c.Source.Addresses[0], User: c.Source.User, Password: c.Source.Password.Source(),
		TLS: secured(c), TLSOptional: c.Source.TLS.Mode == config.TLSPreferred, ServerID: c.Source.ServerID,
		Start: c.Source.Start.String(), Heartbeat: c.Source.Heartbeat,
		IgnoreCascades: c.OnCascade == config.CascadeIgnore,
		FillFrom:       c.Source.FillFrom, FillTimeout: c.Source.FillTimeout, FillLag: c.Source.FillLag,
		FillNames: c.Source.TLS.ServerName == "", FillSettles: LongestD(c), Logged: c.EventLog.Kind == config.EventLogKafka,
	}
	if c.Source.Flavor != config.FlavorAuto {
		o.Flavor = event.Flavor(c.Source.Flavor)
	}
	return o
}

// secured is source.tls, for the name of the source's host where the configuration names none.
func secured(c *config.Config) credential.TLS {
	settings := c.Source.TLS.Client("source.tls")
	if settings == nil {
		return nil
	}
	return func() (*tls.Config, error) {
		t, err := settings()
		if err == nil && t.ServerName == "" {
			t.ServerName, _, _ = net.SplitHostPort(c.Source.Addresses[0])
		}
		return t, err
	}
}

// LongestD returns the longest second delete of a configuration; 0: all have `none`.
func LongestD(c *config.Config) time.Duration {
	d := c.Invalidator.SecondDelete
	for _, m := range c.Mappings {
		d = max(d, m.SecondDelete)
	}
	return d
}
