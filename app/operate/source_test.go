package operate

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
)

// SET PERSIST is wrong advice where a service runs the server.
func TestHowASettingIsSetDependsOnWhoRunsTheServer(t *testing.T) {
	for service, want := range map[canal.Service]string{
		"":             "SET PERSIST binlog_row_image = 'FULL';",
		canal.RDS:      "set binlog_row_image = FULL in the parameter group of the instance",
		canal.Aurora:   "set binlog_row_image = FULL in the parameter group of the DB cluster",
		canal.CloudSQL: "set binlog_row_image = FULL in the database flags",
		canal.Azure:    "set binlog_row_image = FULL in the server parameters",
	} {
		got := set(&canal.SourceInfo{Flavor: event.MySQL, Service: service}, "binlog_row_image", "'FULL'")
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", service, got, want)
		}
	}
}

// A user with the rights that the documentation asks for hears what it does not see; one that lacks one of them, which.
func TestCheckNamesWhatAUserDoesNotSee(t *testing.T) {
	grants := func(on string) []string {
		return []string{"GRANT USAGE ON *.* TO f@h", "GRANT " + on + " ON *.* TO f@h"}
	}
	for _, c := range []struct {
		flavor  event.Flavor
		grants  string
		servers int
		want    string
	}{
		{event.MySQL, "ALL PRIVILEGES", 2, "ok all rights"},
		{event.MySQL, "REPLICATION SLAVE, REPLICATION CLIENT", 2, "ok may read, ok XA_RECOVER_ADMIN, ok TRIGGER"},
		{event.MySQL, "REPLICATION SLAVE, REPLICATION CLIENT, TRIGGER, XA_RECOVER_ADMIN", 1, "ok may read"},
		{event.MySQL, "REPLICATION SLAVE", 1, "fail REPLICATION CLIENT"},
		{event.MariaDB, "REPLICATION SLAVE, BINLOG MONITOR", 1, "ok may read, ok TRIGGER"},
		{event.MariaDB, "REPLICATION SLAVE, BINLOG MONITOR", 2, "ok may read, ok SLAVE MONITOR, ok TRIGGER"},
		{event.MariaDB, "REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR, TRIGGER", 2, "ok may read"},
		{event.MariaDB, "BINLOG MONITOR", 2, "fail REPLICATION SLAVE"},
	} {
		conf, r := &config.Config{}, &Report{}
		conf.Source.User, conf.Source.Addresses = "f", make([]string, c.servers)
		checkGrants(conf, &canal.SourceInfo{Flavor: c.flavor, Grants: grants(c.grants)}, r)
		var got []string
		for _, f := range r.Findings {
			for _, word := range []string{
				"all rights", "may read", "XA_RECOVER_ADMIN", "SLAVE MONITOR", "TRIGGER", "REPLICATION SLAVE", "REPLICATION CLIENT",
			} {
				if strings.Contains(f.What, word) {
					got = append(got, string(f.Grade)+" "+word)
				}
			}
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s on %d servers of %s: %s, want %s", c.grants, c.servers, c.flavor, got, c.want)
		}
	}
}

// A right is given to the account that the server knows: to the same user at another host it would be refused.
func TestCheckGivesARightToTheAccountOfTheServer(t *testing.T) {
	for grant, want := range map[string]string{
		"GRANT REPLICATION SLAVE ON *.* TO `o'neil`@`10.%`": "GRANT REPLICATION CLIENT ON *.* TO `o'neil`@`10.%`;",
		"GRANT REPLICATION SLAVE ON *.* TO 'f'@'h'":         "GRANT REPLICATION CLIENT ON *.* TO 'f'@'h';",
		"GRANT `r`@`%` TO `f`@`h`":                          "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `f`@`h`;",
		"":                                                  "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'o''neil'@'%';",
	} {
		conf, r := &config.Config{}, &Report{}
		conf.Source.User = "o'neil"
		checkGrants(conf, &canal.SourceInfo{Flavor: event.MySQL, Grants: []string{grant}}, r)
		if len(r.Findings) != 1 || r.Findings[0].Fix != want {
			t.Errorf("%s: %+v, want %s", grant, r.Findings, want)
		}
	}
}
