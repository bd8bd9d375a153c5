package connect

import (
	"fmt"
	"net"
	"time"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
)

// Source returns how to reach the source, and what to read of it.
func Source(c *config.Config) (canal.Options, error) {
	tls, err := c.Source.TLS.Client()
	if err != nil {
		return canal.Options{}, fmt.Errorf("source.tls: %w", err)
	}
	o := canal.Options{
		Source: c.Source.Name, Address: c.Source.Addresses[0], User: c.Source.User, Password: c.Source.Password.Reveal(),
		TLS: tls, TLSOptional: c.Source.TLS.Mode == config.TLSPreferred, ServerID: c.Source.ServerID,
		Start: c.Source.Start.String(), Heartbeat: c.Source.Heartbeat,
		IgnoreCascades: c.OnCascade == config.CascadeIgnore,
		FillFrom:       c.Source.FillFrom, FillTimeout: c.Source.FillTimeout, FillLag: c.Source.FillLag,
		FillNames: c.Source.TLS.ServerName == "", FillSettles: LongestD(c),
	}
	if tls != nil && tls.ServerName == "" {
		tls.ServerName, _, _ = net.SplitHostPort(o.Address)
	}
	if c.Source.Flavor != config.FlavorAuto {
		o.Flavor = event.Flavor(c.Source.Flavor)
	}
	return o, nil
}

// LongestD returns the longest second delete of a configuration; 0: all have `none`.
func LongestD(c *config.Config) time.Duration {
	d := c.Invalidator.SecondDelete
	for _, m := range c.Mappings {
		d = max(d, m.SecondDelete)
	}
	return d
}
