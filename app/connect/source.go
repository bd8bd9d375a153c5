package connect

import (
	"fmt"
	"net"

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
	}
	if tls != nil && tls.ServerName == "" {
		tls.ServerName, _, _ = net.SplitHostPort(o.Address)
	}
	if c.Source.Flavor != config.FlavorAuto {
		o.Flavor = event.Flavor(c.Source.Flavor)
	}
	return o, nil
}
