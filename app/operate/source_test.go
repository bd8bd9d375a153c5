package operate

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/canal"
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
