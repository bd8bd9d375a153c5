package invalidator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet/freshet/doubt/alarm"
)

// kin is what is known of the cluster that is followed, to tell its nodes from those of another: a seed may be of
// another cluster by mistake, or an address may have been given to a node of one.
type kin struct {
	// ids are the nodes that the last reading listed, and strangers those that were of another cluster.
	ids, strangers map[string]bool
}

// of returns the views that are of one cluster: that of the reading before, or the only one. Nodes without slots, of
// which that one knows nothing, are left in: nothing is sent to them. strangers are the addresses of the nodes of
// others.
func (k *kin) of(views []view) (ours []view, strangers []string, err error) {
	var foreign []relatives
	best, most := -1, 0
	// The words of an error are the same each time.
	slices.SortFunc(views, func(a, b view) int { return strings.Compare(a.asked, b.asked) })
	groups := related(views)
	for i, g := range groups {
		if known := g.count(k.ids); known > most {
			best, most = i, known
		}
	}
	for i, g := range groups {
		if !g.hasSlots() || i == best {
			ours = append(ours, g.views...)
		} else {
			foreign = append(foreign, g)
		}
	}
	switch {
	case best >= 0:
	case len(foreign) > 1:
		return nil, nil, fmt.Errorf("%s is a node of another cluster than %s: name nodes of one in redis.addresses",
			foreign[1].views[0].asked, foreign[0].views[0].asked)
	case len(foreign) == 1 && foreign[0].count(k.strangers) > 0, len(foreign) == 0 && len(k.ids) > 0:
		return nil, nil, errors.New("of the nodes that are known of the cluster none answers")
	default: // the first reading, or all nodes were made new
		ours, foreign = views, nil
	}
	k.ids = idsOf(ours)
	if len(foreign) > 0 {
		k.strangers = map[string]bool{}
	}
	for _, g := range foreign {
		maps.Copy(k.strangers, g.ids)
		for _, v := range g.views {
			strangers = append(strangers, v.asked)
		}
	}
	slices.Sort(strangers)
	return ours, strangers, nil
}

func idsOf(views []view) map[string]bool {
	ids := map[string]bool{}
	for _, v := range views {
		for _, n := range v.nodes {
			ids[n.id] = true
		}
	}
	return ids
}

// relatives are views that are of one cluster: each knows a node that another knows.
type relatives struct {
	views []view
	ids   map[string]bool
}

// related sorts views by cluster.
func related(views []view) (groups []relatives) {
	for _, v := range views {
		g := relatives{[]view{v}, idsOf([]view{v})}
		groups = slices.DeleteFunc(groups, func(o relatives) bool {
			if o.count(g.ids) == 0 {
				return false
			}
			g.views = append(g.views, o.views...)
			maps.Copy(g.ids, o.ids)
			return true
		})
		groups = append(groups, g)
	}
	return groups
}

// count returns how many of the nodes it knows.
func (g *relatives) count(ids map[string]bool) (n int) {
	for id := range g.ids {
		if ids[id] {
			n++
		}
	}
	return n
}

func (g *relatives) hasSlots() bool {
	return slices.ContainsFunc(g.views, func(v view) bool {
		return slices.ContainsFunc(v.nodes, func(n seenNode) bool { return n.master && len(n.slots) > 0 })
	})
}

// oddities are what is wrong with a cluster for as long as that lasts. Each is an alarm when it comes or changes.
type oddities struct {
	alarms    Alarms
	cluster   string
	unserved  int
	strangers []string
}

func (o *oddities) report(l *Layout) {
	unserved := l.Unserved()
	if unserved > 0 && unserved != o.unserved {
		o.alarms.Raise(alarm.RedisSlotsUnserved, fmt.Sprintf("no node of %s has %d of its slots: their keys wait, and those of "+
			"others go on unless the cluster refuses all; give the slots to a node (redis-cli --cluster fix)", o.cluster, unserved))
	}
	if len(l.Strangers) > 0 && !slices.Equal(l.Strangers, o.strangers) {
		o.alarms.Raise(alarm.RedisStranger, fmt.Sprintf("%s leads to a node of another cluster than the rest of %s: nothing is "+
			"sent there; name nodes of one in redis.addresses", strings.Join(l.Strangers, ", "), o.cluster))
	}
	o.unserved, o.strangers = unserved, l.Strangers
}
