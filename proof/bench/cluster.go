package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

const (
	// clusterMasters is how many masters share the slots.
	clusterMasters = 3
	// clusterSlots is how many slots a cluster has.
	clusterSlots = 1 << 14
)

// cluster is a Redis Cluster of masters alone.
type cluster struct {
	masters []*testbed.RedisServer
}

// cluster starts a Redis Cluster. It ends with the section under way.
func (b *benchmark) cluster(ctx context.Context) (*cluster, error) {
	c := &cluster{}
	for range clusterMasters {
		s, err := testbed.StartRedis(ctx, testbed.Options{Args: []string{
			// A node that is away is no reason for the others to refuse all.
			"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no",
		}})
		if err != nil {
			return nil, err
		}
		b.ending = append(b.ending, s.Close)
		b.started("redis", s.Version)
		c.masters = append(c.masters, s)
	}
	for i, s := range c.masters {
		slots := func(n int) int { return n * clusterSlots / clusterMasters }
		for _, words := range [][]any{
			{"cluster", "addslotsrange", slots(i), slots(i+1) - 1},
			{"cluster", "set-config-epoch", i + 1},
			{"cluster", "meet", "127.0.0.1", c.masters[0].Port, c.masters[0].BusPort},
		} {
			if err := s.Client().Do(ctx, words...).Err(); err != nil {
				return nil, fmt.Errorf("%v: %w", words, err)
			}
		}
	}
	return c, c.awaitReady(ctx)
}

// awaitReady waits until all masters know who has all slots.
func (c *cluster) awaitReady(ctx context.Context) error {
	for begin := time.Now(); ; {
		if !slices.ContainsFunc(c.masters, func(s *testbed.RedisServer) bool {
			info := s.Client().ClusterInfo(ctx).Val()
			return !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", clusterSlots))
		}) {
			return nil
		}
		if time.Since(begin) > goneWithin {
			return errors.New("the cluster does not come about")
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// of returns which of the masters has a key.
func (c *cluster) of(key string) int {
	slot := int(crc16(key)) % clusterSlots
	// The first slot of master i is i*Slots/n, rounded down.
	return ((slot+1)*len(c.masters) - 1) / clusterSlots
}

// crc16 is what a key's slot is made of: CRC-16/XMODEM. The benchmark's keys have no hash tags.
func crc16(key string) (crc uint16) {
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc
}

// crcTable holds the CRC-16/XMODEM of each byte.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
		t[i] = crc
	}
	return t
}()

// clients returns a client of each master.
func (c *cluster) clients() (all []*redis.Client) {
	for _, s := range c.masters {
		all = append(all, s.Client())
	}
	return all
}

// setting is the redis of freshet's configuration.
func (c *cluster) setting() string {
	var addresses []string
	for _, s := range c.masters {
		addresses = append(addresses, s.Addr)
	}
	return fmt.Sprintf("{mode: cluster, addresses: [%s]}", strings.Join(addresses, ", "))
}

// fill makes product:0 to product:rows, each on its master, as fillRedis does for one Redis.
func (c *cluster) fill(ctx context.Context, rows int) error {
	const many = 1000
	pipes := make([]redis.Pipeliner, len(c.masters))
	for i, s := range c.masters {
		if err := s.Client().FlushAll(ctx).Err(); err != nil {
			return err
		}
		pipes[i] = s.Client().Pipeline()
	}
	value := strings.Repeat("v", 100)
	for id := range rows + 1 {
		key := fmt.Sprint("product:", id)
		p := pipes[c.of(key)]
		p.Set(ctx, key, value, 0)
		if p.Len() == many {
			if _, err := p.Exec(ctx); err != nil {
				return err
			}
		}
	}
	for _, p := range pipes {
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// allGone is nil if product:0 is there, which no row has, and nothing else, as for one Redis.
func (c *cluster) allGone(ctx context.Context) error {
	size, kept := int64(0), int64(0)
	for i, rdb := range c.clients() {
		n, err := sizeOf(ctx, rdb)
		if err != nil {
			return err
		}
		size += n
		if i == c.of("product:0") {
			if kept, err = rdb.Exists(ctx, "product:0").Result(); err != nil {
				return err
			}
		}
	}
	if size != 1 || kept != 1 {
		return fmt.Errorf("%w: one key must be left, product:0: there are %d, of which it is %d", errInvalid, size, kept)
	}
	return nil
}
