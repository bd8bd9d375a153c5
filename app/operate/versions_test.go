package operate

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func TestCheckNamesVersionsThatWereNotTried(t *testing.T) {
	for _, c := range []struct {
		flavor       event.Flavor
		version, not string
	}{
		{event.MySQL, "9.7.4", ""},
		{event.MySQL, "8.4.3-commercial", "it was not tried, the tests run on MySQL 9.7"},
		{event.MySQL, "9.70.1", "it was not tried"},
		{event.MariaDB, "10.11.19-MariaDB-0+deb12u1-log", ""},
		{event.MariaDB, "11.8.9-MariaDB", ""},
		{event.MariaDB, "11.80.1-MariaDB", "the tests run on MariaDB 10.11, 11.4, 11.8"},
		{event.MariaDB, "10.6.2-MariaDB", "it was not tried"},
	} {
		line := sourceLine(&canal.SourceInfo{Flavor: c.flavor, Version: c.version, Server: "s"})
		if got := strings.Contains(line, "not tried"); !strings.Contains(line, c.not) || got != (c.not != "") {
			t.Errorf("%s: %q, want %q in it", c.version, line, c.not)
		}
	}
	for _, c := range []struct {
		info map[string]string
		want string
	}{
		{map[string]string{"redis_version": "7.0.15"}, "Redis 7.0.15"},
		{map[string]string{"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.2"}, "Valkey 9.1.2"},
		{map[string]string{"redis_version": "7.2.4"}, "Redis 7.2.4" +
			"; it was not tried, the tests run on Redis 7.0, 8.0 (docs/versions.md)"},
	} {
		product, version := redisProduct(c.info)
		if got := product + " " + version + untried(product, version); got != c.want {
			t.Errorf("%v: %q, want %q", c.info, got, c.want)
		}
	}
}

// What a server says of itself is what was started.
func TestCheckNamesTheRedisThatAnswers(t *testing.T) {
	server := testbed.Redis(t)
	product, version := redisProduct(fields(server.Client().Info(t.Context()).Val()))
	if version != server.Version {
		t.Errorf("check says %s %s, and version %s was started", product, version, server.Version)
	}
}

var versionRow = regexp.MustCompile(`(?m)^\| (MySQL|MariaDB|Redis|Valkey) ([0-9.]+) \|`)

func TestTheVersionsThatWereTriedAreThoseOfTheirPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/versions.md")
	testbed.Must(t, err)
	listed := map[string][]string{}
	for _, m := range versionRow.FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = append(listed[m[1]], m[2])
	}
	for _, product := range []string{"MySQL", "MariaDB", "Redis", "Valkey"} {
		if want := tried(product); !slices.Equal(listed[product], want) || want == nil {
			t.Errorf("docs/versions.md has %s %v, check knows %v", product, listed[product], want)
		}
	}
}
