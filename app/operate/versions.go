package operate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/event"
)

// tried are the versions that freshet's tests have run on, of each product. docs/versions.md says which tests.
func tried(product string) []string {
	return map[string][]string{
		"MySQL":   {"9.7"},
		"MariaDB": {"10.11", "11.4", "11.8"},
		"Redis":   {"7.0", "8.0"},
		"Valkey":  {"9.1"},
	}[product]
}

// untried says in a clause that the tests have not run on a version, and on which they have; "" if they have.
func untried(product, version string) string {
	all := tried(product)
	if slices.ContainsFunc(all, func(v string) bool { return strings.HasPrefix(version+".", v+".") }) {
		return ""
	}
	return fmt.Sprintf("; it was not tried, the tests run on %s %s (docs/versions.md)", product, strings.Join(all, ", "))
}

// sourceLine is what check says of the version of a source.
func sourceLine(info *canal.SourceInfo) string {
	product := "MySQL"
	if info.Flavor == event.MariaDB {
		product = "MariaDB"
	}
	number, _, _ := strings.Cut(info.Version, "-") // 11.8.9-MariaDB-log
	return fmt.Sprintf("%s %s, server %s%s", info.Flavor, info.Version, info.Server, untried(product, number))
}

// redisProduct returns which product a server is, by what it says of itself, and its version. Valkey calls itself a
// Redis 7.2 for the sake of older clients.
func redisProduct(v map[string]string) (product, version string) {
	if version := v["valkey_version"]; version != "" {
		return "Valkey", version
	}
	return "Redis", v["redis_version"]
}
