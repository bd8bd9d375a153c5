package canal

import (
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/proof/testbed/replay"
)

// Servers that the tests cannot start wrote these binlogs. Nothing in them names columns, so that the definitions are
// asked for.
func TestRecordingsOfOlderServersAreRead(t *testing.T) {
	ids := func(schema, name string) replay.Table {
		return replay.Table{
			Schema: schema, Name: name, Columns: []string{"id bigint", "a bigint", "b bigint", "c tinyint(4)"},
		}
	}
	movie := func(genre string) string {
		return "(1,Once Upon a Time in the West,1968,Italy," + genre + ",Claudia Cardinale|Charles Bronson|Henry Fonda|" +
			"Gabriele Ferzetti|Frank Wolff|Al Mulock|Jason Robards|Woody Strode|Jack Elam|Lionel Stander|Paolo Stoppa|" +
			"Keenan Wynn|Aldo Sambrell,Sergio Leone,Ennio Morricone,Sergio Leone|Sergio Donati|Dario Argento|" +
			"Bernardo Bertolucci,Tonino Delli Colli,Paramount Pictures)"
	}
	for _, c := range []struct {
		name   string
		tables []replay.Table
		rows   []string
	}{
		{
			"mysql-5.7.21-checksums",
			[]replay.Table{
				ids("auth", "announcement_member"), ids("auth", "role"),
				{Schema: "auth", Name: "material_warehouse_ownership", Columns: []string{
					"id bigint", "a bigint", "b bigint", "c bigint", "d bigint",
				}},
				{Schema: "menkor_dev", Name: "fund_pool_ownership", Columns: []string{
					"id bigint", "a bigint", "b bigint", "c bigint",
				}},
			},
			[]string{
				"insert auth.announcement_member (13300007,550224,1254403,0)",
				"insert auth.announcement_member (13300008,550225,1254403,0)",
				"delete auth.announcement_member (13300008,550225,1254403,0)",
				"insert auth.announcement_member (13300009,550225,1254403,0)",
				"insert auth.role (13500110,13100009,13600306,1)",
				"insert auth.material_warehouse_ownership (12500053,12500072,13600306,NULL,13500110)",
				"insert menkor_dev.fund_pool_ownership (13500013,13500013,13600306,13100009)",
			},
		},
		{
			"mysql-8.0.28-compressed",
			[]replay.Table{{Schema: "demo", Name: "movies", Collation: "utf8mb4_0900_ai_ci", Columns: []string{
				"id int", "title varchar(256)", "year int", "country varchar(256)", "genre varchar(256)", "actor varchar(1024)",
				"director varchar(512)", "composer varchar(256)", "screenwriter varchar(256)", "cinematographer varchar(256)",
				"production_company varchar(256)",
			}}},
			[]string{"update demo.movies " + movie("Western") + "->" + movie("Western|Action")},
		},
		{"aurora-5.7.12-padding", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			recording := replay.Load(t, c.name)
			s := replay.Start(t, recording, replay.Options{Tables: c.tables})
			o := Options{Address: s.Addr, User: replay.User, Password: credential.Text(replay.Password), Start: "earliest"}
			o.Wanted = func(string, string) bool { return true }
			r := reading(t, newRecorder(), o)
			r.await(t, "all is read", func() bool {
				return len(r.rows) >= len(c.rows) && len(r.marks) > 5
			})
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			for _, d := range r.doubts.List() {
				t.Errorf("in doubt: %s", d.Message)
			}
			if got := r.texts(); !slices.Equal(got, c.rows) {
				t.Errorf("rows\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.rows, "\n  "))
			}
			if q := s.Unanswered(); len(q) > 0 {
				t.Errorf("the recording does not answer %q", q)
			}
		})
	}
}
