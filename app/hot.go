package app

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/freshet/freshet/invalidator/hot"
)

const (
	// hotShown is how many of the hottest keys and tables are shown to who asks for them, hotTables how many tables
	// stand in the status, and hotLogged how many of either in the log.
	hotShown, hotTables, hotLogged = 20, 10, 5
	// hotLogEvery is the time between two lines in the log.
	hotLogEvery = time.Minute
)

// HotStatus is what changes most. [Status] has only its tables; GET /hot has the keys as well, for who holds the token:
// they are made of what stands in rows.
type HotStatus struct {
	// Window is how far back the rates reach, in seconds: what came that long ago counts about a third.
	Window float64 `json:"window_seconds"`
	// PerSecond is how many keys were made stale per second.
	PerSecond float64    `json:"keys_per_second"`
	Keys      []HotCount `json:"keys,omitempty"`
	Tables    []HotCount `json:"tables"`
}

// HotCount is how often a key was made stale, or keys by the rows of a table.
type HotCount struct {
	// Name is schema.table, or the key without redis.key_prefix. A key that is not printable text is quoted as in Go,
	// so that it begins and ends with ". Of a long one, it is the beginning.
	Name string `json:"name"`
	// Length is the key's length in bytes where Name is only the beginning, else 0.
	Length int `json:"length,omitempty"`
	// PerSecond is an estimate; the truth is between Low and High.
	PerSecond float64 `json:"per_second"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
}

// hotNow returns what changes most, without keys.
func (d *deleting) hotNow(tables int) *HotStatus {
	return &HotStatus{
		Window: d.hot.Window().Seconds(), PerSecond: d.hot.PerSecond(),
		Tables: hotCounts(d.hot.Tables(tables)),
	}
}

// Hot implements invalidatorHalf: it is what GET /hot returns.
func (d *deleting) Hot() any {
	s := d.hotNow(hotShown)
	s.Keys = hotCounts(d.hot.Keys(hotShown))
	return s
}

func hotCounts(counts []hot.Count) []HotCount {
	all := make([]HotCount, len(counts))
	for i, c := range counts {
		all[i] = HotCount{Name: printable(c.Name), PerSecond: c.PerSecond, Low: c.Low, High: c.High}
		if c.Length > len(c.Name) {
			all[i].Length = c.Length
		}
	}
	return all
}

// printable returns a key as it is where it is text that a terminal, a page and JSON show as it is; else quoted.
func printable(key string) string {
	shown := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if utf8.ValidString(key) && !strings.HasPrefix(key, `"`) &&
		strings.IndexFunc(key, func(r rune) bool { return !shown(r) }) < 0 {
		return key
	}
	return strconv.Quote(key)
}

// String returns the count in a few words.
func (c HotCount) String() string { return c.Name + " " + rate(c.PerSecond) }

// rate says how often per second, in no more digits than are of use.
func rate(perSecond float64) string {
	switch {
	case perSecond >= 100:
		return fmt.Sprintf("%.0f/s", perSecond)
	case perSecond >= 1:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return fmt.Sprintf("%.2g/s", perSecond)
}

// Print writes for a human what GET /hot returned.
func (s *HotStatus) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "\nover about the last %s: %s keys in all\n", time.Duration(s.Window*float64(time.Second)),
		rate(s.PerSecond))
	for _, part := range []struct {
		title  string
		counts []HotCount
	}{{"HOTTEST TABLES", s.Tables}, {"HOTTEST KEYS", s.Keys}} {
		fmt.Fprintf(t, "\n%s\tKEYS/S\tBETWEEN\n", part.title)
		for _, c := range part.counts {
			name := c.Name
			if c.Length > 0 {
				name += fmt.Sprintf("… (%d bytes)", c.Length)
			}
			between := "exactly"
			if c.Low != c.High {
				between = rate(c.Low) + " and " + rate(c.High)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", name, rate(c.PerSecond), between)
		}
	}
	return t.Flush()
}

// logHot says once a minute, at debug, what changes most, until ctx ends. Tables are named; of keys only their
// rates are told, since a key can hold what stands in a row, and a log goes where the token does not.
func (d *deleting) logHot(ctx context.Context) error {
	tick := time.NewTicker(hotLogEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		tables := hotCounts(d.hot.Tables(hotLogged))
		if len(tables) == 0 {
			continue
		}
		named := make([]string, len(tables))
		for i, c := range tables {
			named[i] = c.String()
		}
		keys := []string{}
		for _, c := range d.hot.Keys(hotLogged) {
			keys = append(keys, rate(c.PerSecond))
		}
		d.options.Log.Debug("hottest tables and keys", "keys_per_second", rate(d.hot.PerSecond()), "tables", named,
			"hottest_keys", keys)
	}
}
