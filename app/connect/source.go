package connect

import (
	"slices"
	"time"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Source returns how to reach the source, and what to read of it.
func Source(c *config.Config) canal.Options {
	o := canal.Options{
		Source: c.Source.Name, Servers: canal.NewServers(c.Source.Addresses...),
		User: c.Source.User, Password: c.Source.Password.Source(),
		TLS: c.Source.TLS.Client("source.tls"), TLSOptional: c.Source.TLS.Mode == config.TLSPreferred,
		ServerID: c.Source.ServerID,
		Start:    c.Source.Start.String(), Heartbeat: c.Source.Heartbeat,
		IgnoreCascades: c.OnCascade == config.CascadeIgnore,
		FillFrom:       c.Source.FillFrom, FillTimeout: c.Source.FillTimeout, FillLag: c.Source.FillLag,
		FillSettles: LongestD(c), Logged: c.EventLog.Kind == config.EventLogKafka,
	}
	if c.Source.Flavor != config.FlavorAuto {
		o.Flavor = event.Flavor(c.Source.Flavor)
	}
	return o
}

// Routed has a stream give what the mappings of a router name, and no more.
func Routed(o *canal.Options, r *router.Router) {
	o.Wanted, o.WantedFolded, o.Uses = r.Wants, r.WantsFolded, r.Uses
	o.Templates = templates(r)
}

// maxTemplates bounds how many bytes of templates a doubt names.
const maxTemplates = 64 << 10

// templates returns those of all keys, in order; nil: they are too many for a doubt.
func templates(r *router.Router) (all []string) {
	size := 0
	for _, m := range r.Mappings() {
		for i := range m.Actions {
			t := m.Actions[i].Key.Text.Value
			if all = append(all, t); len(t)+size > maxTemplates {
				return nil
			}
			size += len(t)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// LongestD returns the longest second delete of a configuration; 0: all have `none`.
func LongestD(c *config.Config) time.Duration {
	d := c.Invalidator.SecondDelete
	for _, m := range c.Mappings {
		d = max(d, m.SecondDelete)
	}
	return d
}
