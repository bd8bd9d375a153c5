package operate

import (
	"testing"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/proof/testbed"
)

// What is shipped as an example must work as it stands.
func TestTheExampleConfigurationIsValid(t *testing.T) {
	c, err := config.Load("../../deploy/freshet.yaml", CheckMappings)
	testbed.Must(t, err)
	if len(c.Mappings) == 0 {
		t.Error("it has no mappings")
	}
}

func TestAllProblemsOfTheMappingsAreReportedWithTheirPlaces(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte(`
source: {addresses: ["127.0.0.1:3306"], user: u}
redis: {addresses: ["127.0.0.1:6379"]}
mappings:
  - table: shop.product
    when: "row.id =="
    keys: ["product:{id", "sku:{sku|lowr}"]
`), CheckMappings)
	problems, ok := err.(spec.Problems)
	if !ok || len(problems) != 3 {
		t.Fatalf("got %v", err)
	}
	for i, want := range []spec.Pos{{File: "f.yaml", Line: 6}, {File: "f.yaml", Line: 7}, {File: "f.yaml", Line: 7}} {
		if at := problems[i].Pos; at.File != want.File || at.Line != want.Line || at.Column == 0 {
			t.Errorf("%v is at %v, want line %d", problems[i], at, want.Line)
		}
	}
}
