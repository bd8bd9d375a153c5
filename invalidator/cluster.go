package invalidator

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClusterOptions say how to reach a Redis Cluster.
type ClusterOptions struct {
	// Seeds are nodes that are asked first, host:port each. One that answers is enough.
	Seeds []string
	// Node is how each node is connected to: all but where it is.
	Node SingleOptions
}

// Nodes is a [Cluster] of Redis, each of its nodes a [Single]. It connects when it is first used.
type Nodes struct {
	options   ClusterOptions
	connected func(ctx context.Context, address string, c *redis.Conn) error
	asking    sync.WaitGroup
	reading   sync.Mutex // one asks at a time

	mu sync.Mutex
	// singles are the nodes of the last layout, by id and address.
	singles map[clusterNode]*Single
	// leaving are those that are in it no more and have not been released.
	leaving map[*Single]struct{}
	// looks ask what is where, by address.
	looks map[string]*look
	// said is what each master has said of itself last.
	said map[string]seenNode
	kin  kin
}

type clusterNode struct{ id, addr string }

// look asks one address.
type look struct {
	single *Single
	client *redis.Client
	// busy: it has been asked, and has not answered.
	busy atomic.Bool
}

// NewNodes returns the nodes of a cluster. Close it.
func NewNodes(o ClusterOptions) (*Nodes, error) {
	if len(o.Seeds) == 0 {
		return nil, errors.New("redis: a cluster needs at least one address")
	}
	if o.Node.DB != 0 {
		return nil, errors.New("redis: a cluster has the database 0 only")
	}
	if o.Node.Timeout == 0 {
		o.Node.Timeout = DefaultTimeout
	}
	c := &Nodes{
		options: o, singles: map[clusterNode]*Single{}, leaving: map[*Single]struct{}{}, looks: map[string]*look{},
		said: map[string]seenNode{},
	}
	for _, addr := range o.Seeds {
		if _, err := c.lookAt(addr); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Connected has each new connection to a node be given to a function, with the node's address, before it is used, as
// [SingleOptions].Connected is. It must be called before anything is asked.
func (c *Nodes) Connected(f func(ctx context.Context, address string, c *redis.Conn) error) {
	c.connected = f
}

// node returns a client of the node at an address.
func (c *Nodes) node(addr string) (*Single, error) {
	o := c.options.Node
	o.Address = addr
	if connected := c.connected; connected != nil {
		o.Connected = func(ctx context.Context, conn *redis.Conn) error { return connected(ctx, addr, conn) }
	}
	s, err := NewSingle(o)
	if err == nil {
		s.slots.Store(true)
	}
	return s, err
}

func (c *Nodes) lookAt(addr string) (*look, error) {
	if l := c.looks[addr]; l != nil {
		return l, nil
	}
	s, err := c.node(addr)
	if err != nil {
		return nil, err
	}
	l := &look{single: s, client: s.Looking()}
	c.looks[addr] = l
	return l, nil
}

func (l *look) close() error { return errors.Join(l.client.Close(), l.single.Close()) }

// lateView is for how long the others are waited for once a node has answered.
const lateView = 250 * time.Millisecond

// Masters returns clients of all nodes that have slots, and what tells this distribution of the slots from every other,
// also from one that was the same before slots went elsewhere and came back; "" while slots are being moved.
func (c *Nodes) Masters(ctx context.Context) (clients []*redis.Client, as string, err error) {
	l, err := c.Layout(ctx)
	if err != nil {
		return nil, "", err
	}
	h := fnv.New128a()
	for _, n := range l.Nodes {
		s := n.(*Single) // it is one of ours
		clients = append(clients, s.Client())
		_, _ = fmt.Fprintln(h, s)
	}
	epochs := make([]uint64, len(l.Nodes)) // a slot may have been elsewhere meanwhile
	for _, m := range l.Masters {
		if m.Ordinal >= 0 {
			epochs[m.Ordinal] = m.Epoch
		}
	}
	_, _ = fmt.Fprintln(h, epochs)
	for slot, n := range l.Owner {
		if n < 0 {
			return nil, "", fmt.Errorf("no node of %s has slot %d", c, slot)
		}
		_, _ = fmt.Fprintln(h, n)
	}
	if len(l.Takers) == 0 {
		as = hex.EncodeToString(h.Sum(nil))
	}
	return clients, as, nil
}

// Layout implements [Cluster]: it asks all nodes that are known at once.
func (c *Nodes) Layout(ctx context.Context) (*Layout, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	looks := maps.Clone(c.looks)
	c.mu.Unlock()
	views, err := c.ask(ctx, looks)
	if len(views) == 0 {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	views, strangers, err := c.kin.of(views)
	if err != nil {
		return nil, err
	}
	if err := c.follow(views); err != nil {
		return nil, err
	}
	l, err := c.layOut(agree(views, c.said))
	if l != nil {
		l.Strangers = strangers
	}
	return l, err
}

// ask returns what the nodes say that answer in time, and what the others failed with.
func (c *Nodes) ask(ctx context.Context, looks map[string]*look) (views []view, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Node.Timeout)
	defer cancel()
	type said struct {
		view view
		err  error
	}
	answers, asked := make(chan said, len(looks)), 0
	for addr, l := range looks {
		if !l.busy.CompareAndSwap(false, true) {
			continue // it hangs
		}
		asked++
		c.asking.Go(func() {
			v, err := l.ask(ctx, addr)
			answers <- said{v, err}
			l.busy.Store(false)
		})
	}
	var failed []error
	if asked == 0 {
		failed = append(failed, errors.New("all nodes hang"))
	}
	var late <-chan time.Time
	for range asked {
		select {
		case a := <-answers:
			if a.err != nil {
				failed = append(failed, a.err)
				continue
			}
			if views = append(views, a.view); late == nil {
				timer := time.NewTimer(lateView)
				defer timer.Stop()
				late = timer.C
			}
		case <-late:
			return views, nil
		}
	}
	return views, errors.Join(failed...)
}

func (l *look) ask(ctx context.Context, addr string) (view, error) {
	pipe := l.client.Pipeline()
	nodes, called := pipe.ClusterNodes(ctx), pipe.ClusterSlots(ctx)
	_, err := pipe.Exec(ctx)
	if err != nil {
		return view{}, fmt.Errorf("%s: %w", addr, err)
	}
	return parseView(nodes.Val(), called.Val(), addr), nil
}

// follow has all nodes that are known be asked from now on, replicas as well: one of them may be a master next time.
func (c *Nodes) follow(views []view) error {
	wanted := map[string]bool{}
	for _, addr := range c.options.Seeds {
		wanted[addr] = true
	}
	for _, v := range views {
		for _, n := range v.nodes {
			if n.addr != "" {
				wanted[n.addr] = true
			}
		}
	}
	var errs []error
	for addr := range wanted {
		if _, err := c.lookAt(addr); err != nil {
			errs = append(errs, err)
		}
	}
	for addr, l := range c.looks {
		if !wanted[addr] {
			delete(c.looks, addr)
			errs = append(errs, l.close())
		}
	}
	return errors.Join(errs...)
}

// layOut makes a layout of what the masters are known to have.
func (c *Nodes) layOut(masters map[string]seenNode) (*Layout, error) {
	l := &Layout{Takers: map[uint16]int16{}}
	var owner [Slots]string
	var epoch [Slots]uint64
	for id, n := range masters {
		for _, r := range n.slots {
			for s := int(r.from); s <= int(r.to); s++ {
				if owner[s] == "" || n.epoch > epoch[s] || n.epoch == epoch[s] && id < owner[s] {
					owner[s], epoch[s] = id, n.epoch
				}
			}
		}
	}
	ordinals, kept := map[string]int16{}, map[clusterNode]*Single{}
	ordinal := func(id string) (int16, error) {
		n, known := masters[id]
		if !known || n.addr == "" {
			return -1, nil
		}
		if at, is := ordinals[id]; is {
			return at, nil
		}
		key := clusterNode{id, n.addr}
		s := c.singles[key]
		if s == nil {
			var err error
			if s, err = c.node(n.addr); err != nil {
				return -1, err
			}
		}
		kept[key] = s
		ordinals[id] = int16(len(l.Nodes))
		l.Nodes = append(l.Nodes, s)
		return ordinals[id], nil
	}
	var errs []error
	for s := range owner {
		n, err := ordinal(owner[s])
		errs = append(errs, err)
		l.Owner[s] = n
		if to, moving := masters[owner[s]].moving[uint16(s)]; moving {
			if n, err = ordinal(to); n >= 0 {
				l.Takers[uint16(s)] = n
			}
			errs = append(errs, err)
		}
	}
	for id, n := range masters {
		if n.addr == "" && len(n.slots) > 0 {
			l.Portless++
		}
		if looked := c.looks[n.addr]; looked != nil {
			m := Master{
				ID: id, Address: n.addr, Looking: looked.client, Node: kept[clusterNode{id, n.addr}], Ordinal: -1,
				Epoch: n.epoch,
			}
			if at, has := ordinals[id]; has {
				m.Ordinal = at
			}
			l.Masters = append(l.Masters, m)
		}
	}
	for key, s := range c.singles {
		if kept[key] != s {
			c.leaving[s] = struct{}{}
		}
	}
	c.singles = kept
	return l, errors.Join(errs...)
}

// Release implements [Cluster].
func (c *Nodes) Release(r Redis) {
	s, is := r.(*Single)
	if !is {
		return
	}
	c.mu.Lock()
	delete(c.leaving, s)
	c.mu.Unlock()
	_ = s.Close() // nothing is under way
}

// Close closes all connections. Nothing may be under way.
func (c *Nodes) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, l := range c.looks {
		errs = append(errs, l.close())
	}
	c.asking.Wait()
	for _, s := range c.singles {
		errs = append(errs, s.Close())
	}
	for s := range c.leaving {
		errs = append(errs, s.Close())
	}
	clear(c.looks)
	clear(c.singles)
	clear(c.leaving)
	return errors.Join(errs...)
}

// String implements [Cluster].
func (c *Nodes) String() string { return "cluster " + strings.Join(slices.Clone(c.options.Seeds), ",") }
