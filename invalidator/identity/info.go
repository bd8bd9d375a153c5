package identity

import (
	"strconv"
	"strings"
	"time"
)

// server is what INFO says about a Redis server: its sections server, persistence, replication and keyspace.
type server struct {
	// run is drawn by a server when it starts; repl names the history of its data, and parent the one that it had
	// before it was promoted (empty: it was not).
	run, repl, parent string
	replica, loading  bool
	// loaded is how many keys it has read from a snapshot, at its start or from a master; -1: it does not say (before
	// Redis 7.0), or it reads a file of commands as well.
	loaded int64
	// keys are those of our database.
	keys   int64
	uptime time.Duration // in whole seconds
	// since is how much of the present second has passed; 0: it does not say (before Redis 6.2).
	since time.Duration
}

// parse reads INFO; false if it does not say who the server is.
func parse(info string, db int) (server, bool) {
	f := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
	number := func(text string, unknown int64) int64 {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		return unknown
	}
	s := server{
		run: f["run_id"], repl: f["master_replid"], replica: f["role"] == "slave",
		loading: number(f["loading"], 0)+number(f["async_loading"], 0) != 0,
		loaded:  number(f["rdb_last_load_keys_loaded"], -1),
		uptime:  time.Duration(number(f["uptime_in_seconds"], 0)) * time.Second,
		since:   time.Duration(number(f["server_time_usec"], 0)%1e6) * time.Microsecond,
	}
	if p := f["master_replid2"]; strings.Trim(p, "0") != "" {
		s.parent = p
	}
	if f["aof_enabled"] != "0" {
		s.loaded = -1
	}
	// db0:keys=12,expires=3,avg_ttl=0; a database without keys is not listed.
	if counts, ok := f["db"+strconv.Itoa(db)]; ok {
		keys, _, _ := strings.Cut(strings.TrimPrefix(counts, "keys="), ",")
		s.keys = number(keys, 1)
	}
	return s, s.run != "" && f["uptime_in_seconds"] != ""
}
