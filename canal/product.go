package canal

import (
	"fmt"
	"strings"
)

// imitations are products that speak the protocol of MySQL and have no binlog for us, by a part of their versions.
// Source: the documentation of TiDB ("MySQL Compatibility"), Vitess ("MySQL Compatibility"; PlanetScale is one) and
// SingleStore. None was tried: real servers with such versions stand in for them.
var imitations = []struct{ part, name, why string }{
	{"TiDB", "TiDB", "it has no binlog of MySQL's kind"},
	{"Vitess", "Vitess (or PlanetScale)", "vtgate has no binlog; its shards have one each, and their rows move " +
		"between them"},
	{"SingleStore", "SingleStore", "it has no binlog of MySQL's kind"},
	{"MemSQL", "SingleStore", "it has no binlog of MySQL's kind"},
}

// imitation returns an error if one of the versions is that of a product that cannot be read.
func imitation(address string, versions ...string) error {
	for _, v := range versions {
		for _, i := range imitations {
			if strings.Contains(strings.ToLower(v), strings.ToLower(i.part)) {
				return fmt.Errorf("source %s is %s, version %s, which freshet cannot read: %s", address, i.name, v, i.why)
			}
		}
	}
	return nil
}

// proxy returns an error if ProxySQL answers, which sends each question to a server of its choice, and no binlog.
// Source: ProxySQL answers this text itself, so that the mysql client shows whom it speaks with.
func (s *session) proxy() error {
	r, err := s.row("select @@version_comment limit 1")
	if err != nil || !strings.Contains(r[0], "ProxySQL") {
		return err
	}
	return fmt.Errorf("source %s is ProxySQL, which passes on no binlog: name the servers themselves in source.addresses", s.address)
}

// Service is a service that runs the server for us, which decides where a setting is set.
type Service string

// The services. An empty one is a server that nobody runs for us, or that does not say so.
const (
	RDS      Service = "rds"
	Aurora   Service = "aurora"
	CloudSQL Service = "cloudsql"
	Azure    Service = "azure"
)

// serviceOf returns the service that variables and the version speak of.
// Source: Amazon Aurora User Guide, "aurora_version"; Cloud SQL and Azure Database for MySQL have it in their versions,
// such as 8.0.31-google and 8.0.34-azure.
func serviceOf(version string, v map[string]string) Service {
	switch {
	case v["aurora_version"] != "":
		return Aurora
	case strings.HasPrefix(v["basedir"], rdsRoot):
		return RDS
	case strings.Contains(version, "-google"):
		return CloudSQL
	case strings.Contains(version, "-azure"):
		return Azure
	}
	return ""
}
