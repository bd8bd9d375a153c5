package operate

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/write"
)

// clusterRights are what asking a cluster for its nodes takes.
const clusterRights = "+cluster|nodes +cluster|slots"

// checkCluster looks at the nodes of a Redis Cluster: whether each seed knows it, whether all slots are served, and
// then at each master as at a single server.
func checkCluster(ctx context.Context, c *config.Config, cached *sample, r *Report) {
	if !checkSeeds(ctx, c, r) {
		return
	}
	nodes, err := connect.Cluster(c)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	defer nodes.Close()
	var l *invalidator.Layout
	for range 2 { // at first the seeds are asked, and then all that these know of
		if l, err = nodes.Layout(ctx); err != nil {
			r.add(Fail, err.Error(), mendSeed(c, err))
			return
		}
	}
	checkSlots(c, r, l)
	for i, n := range l.Nodes {
		one := n.(*invalidator.Single) // it is one of ours
		s := &redisServer{one, one.Client(), one.String(), func() string { return keyOf(c, l, i) }}
		var of Report
		if checkServer(ctx, c, &of, s) {
			cached.take(ctx, s.rdb)
		}
		if err := s.rdb.Do(ctx, "asking").Err(); redis.IsPermissionError(err) {
			of.add(Warn, fmt.Sprintf("redis %s: user %s may not run asking: while a slot is moved, its keys wait", s.at,
				orDefaultUser(c)), fmt.Sprintf("ACL SETUSER %s +asking", orDefaultUser(c)))
		}
		if err := s.rdb.Do(ctx, "cluster", "getslotmigrations").Err(); redis.IsPermissionError(err) {
			of.add(Warn, fmt.Sprintf("redis %s: user %s may not run cluster|getslotmigrations: deletes that are lost with slots "+
				"which another node takes too late (CLUSTER MIGRATESLOTS) go unnoticed", s.at, orDefaultUser(c)),
				fmt.Sprintf("ACL SETUSER %s +cluster|getslotmigrations", orDefaultUser(c)))
		}
		r.service = r.service || of.service
		for _, f := range of.Findings {
			if !slices.Contains(r.Findings, f) { // what is said of all of them is said once
				r.Findings = append(r.Findings, f)
			}
		}
	}
	cached.report(c, r)
}

// checkSeeds asks each of redis.addresses alone for the nodes of the cluster, and reports whether any knows them and
// all speak of the same cluster.
func checkSeeds(ctx context.Context, c *config.Config, r *Report) bool {
	var first string
	known := map[string]bool{} // the addresses of the nodes
	failed := map[string]error{}
	for _, seed := range c.Redis.Addresses {
		is, err := mastersBy(ctx, c, seed)
		if err != nil {
			failed[seed] = err
			continue
		}
		if first == "" {
			first = seed
		} else if !slices.ContainsFunc(is, func(addr string) bool { return known[addr] }) {
			r.add(Fail, fmt.Sprintf("%s and %s in redis.addresses are nodes of different clusters", first, seed),
				"name nodes of one")
			return false
		}
		for _, addr := range is {
			known[addr] = true
		}
	}
	grade := Warn
	if first == "" {
		grade = Fail
	}
	for _, seed := range c.Redis.Addresses {
		if err := failed[seed]; err != nil {
			r.add(grade, fmt.Sprintf("redis %v", err), mendSeed(c, err))
		}
	}
	return first != ""
}

// mastersBy returns the addresses of the masters that a node knows.
func mastersBy(ctx context.Context, c *config.Config, seed string) (all []string, err error) {
	alone := *c
	alone.Redis.Addresses = []string{seed}
	nodes, err := connect.Cluster(&alone)
	if err != nil {
		return nil, err
	}
	defer nodes.Close()
	l, err := nodes.Layout(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range l.Nodes {
		all = append(all, n.String())
	}
	return all, noMasters(seed, l)
}

// noMasters is nil if a node knows one that can be reached.
func noMasters(seed string, l *invalidator.Layout) error {
	switch {
	case len(l.Nodes) > 0:
		return nil
	case l.Portless > 0:
		return fmt.Errorf("%s says of %d masters with slots that they have the port 0", seed, l.Portless)
	}
	return fmt.Errorf("%s knows no master that has slots", seed)
}

func mendSeed(c *config.Config, err error) string {
	switch {
	case strings.Contains(err.Error(), "cluster support disabled"):
		return "it is a server of its own: set redis.mode to single, or name nodes of a cluster in redis.addresses"
	case redis.IsPermissionError(err):
		return fmt.Sprintf("ACL SETUSER %s %s, on every node", orDefaultUser(c), clusterRights)
	case strings.Contains(err.Error(), "knows no master"):
		return "make it part of the cluster (CLUSTER MEET), or name others in redis.addresses"
	case strings.Contains(err.Error(), "have the port 0"):
		return "set tls-cluster to yes on nodes that have a tls-port only, or cluster-announce-port"
	}
	if advice := mendReply(c, err); advice != "" {
		return advice
	}
	return "start it, or name others in redis.addresses; are redis.username and password right?"
}

// checkSlots looks whether all slots are served, and where.
func checkSlots(c *config.Config, r *Report, l *invalidator.Layout) {
	var names []string
	for _, n := range l.Nodes {
		names = append(names, n.String())
	}
	r.add(OK, fmt.Sprintf("the redis cluster has %d masters with slots: %s", len(names), strings.Join(names, ", ")), "")
	nobody, moving := l.Unserved(), len(l.Takers)
	if nobody > 0 {
		r.add(Fail, fmt.Sprintf("no node of the redis cluster serves %d of its %d slots: their keys wait", nobody,
			invalidator.Slots), fmt.Sprintf("redis-cli --cluster fix %s", c.Redis.Addresses[0]))
	}
	if moving > 0 {
		r.add(Warn, fmt.Sprintf("%d slots of the redis cluster are being moved: some of their keys wait until that is over",
			moving), fmt.Sprintf("if nobody moves them: redis-cli --cluster fix %s", c.Redis.Addresses[0]))
	}
	if strings.Contains(c.Redis.KeyPrefix, "{") {
		r.add(Warn, "redis.key_prefix has a hash tag: all keys are in one slot, on one node of the cluster",
			"leave out the braces")
	}
}

// keyOf returns a key that nobody has in a slot of a node; "": with redis.key_prefix none is.
func keyOf(c *config.Config, l *invalidator.Layout, node int) string {
	names := write.Names{Prefix: c.Redis.KeyPrefix}
	for range 16 * invalidator.Slots { // a node may have a single slot
		if key := probeKey + rand.Text(); int(l.Owner[names.Slot(key)]) == node {
			return key
		}
	}
	return ""
}
