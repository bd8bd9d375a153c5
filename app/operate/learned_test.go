package operate

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// keepTables keeps a definition with an id for the source shop.
func keepTables(t *testing.T, facts doubt.Facts, change func(*Definitions)) {
	t.Helper()
	d := Definitions{
		Used: map[string]bool{"id": true}, Whole: true,
		Tables: []*event.Table{{Schema: "shop", Name: "product", Columns: []event.Column{{Name: "id"}}}},
	}
	change(&d)
	text, err := Pack(d)
	testbed.Must(t, err)
	testbed.Must(t, facts.SetFact(t.Context(), DefinitionsFact("shop"), text))
}

func TestInvalidatorsLearnTheMappingsAsTheirReaderHasThem(t *testing.T) {
	text, err := os.ReadFile("../../deploy/freshet.yaml")
	testbed.Must(t, err)
	for _, file := range []string{string(text), shop} {
		c, err := config.Parse("f.yaml", []byte(file), CheckMappings)
		testbed.Must(t, err)
		kept, err := Pack(c.Mappings)
		testbed.Must(t, err)
		var is []spec.Mapping
		testbed.Must(t, Unpack(kept, &is))
		if !reflect.DeepEqual(is, c.Mappings) {
			t.Errorf("they are %+v, and were %+v", is, c.Mappings)
		}
	}
}

func TestInvalidatorsLearnOnlyWhatIsWhole(t *testing.T) {
	mappings := spectest.Specs(spectest.Keys("product:{id}").On("shop.product"))
	for what, c := range map[string]struct {
		change func(*Definitions)
		want   string // "": it is learned
	}{
		"all is there":                         {func(*Definitions) {}, ""},
		"tables did not fit, or are not known": {func(d *Definitions) { d.Whole = false }, "has not kept which columns"},
		"the mappings use other columns now": {
			func(d *Definitions) { d.Used = map[string]bool{"sku": true} }, "has not kept which columns",
		},
	} {
		t.Run(what, func(t *testing.T) {
			facts := &doubttest.Memory{}
			testbed.Must(t, KeepMappings(t.Context(), facts, "shop", mappings))
			keepTables(t, facts, c.change)
			all, err := LearnAll(t.Context(), facts)
			switch {
			case c.want != "":
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
			case err != nil || len(all) != 1 || all[0].Source != "shop" || len(all[0].Mappings) != 1 ||
				all[0].Tables[0].String() != "shop.product":
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
	if _, err := LearnAll(t.Context(), &doubttest.Memory{}); err == nil || !strings.Contains(err.Error(), "no reader") {
		t.Error(err)
	}
}

func TestWhatAnotherVersionHasKeptIsNotGuessed(t *testing.T) {
	facts := &doubttest.Memory{}
	text, err := Pack([]map[string]any{{"Table": map[string]string{"Value": "shop.product"}, "Bitmap": "b:{id}"}})
	testbed.Must(t, err)
	testbed.Must(t, facts.SetFact(t.Context(), "mappings/shop", text))
	if _, err := Learn(t.Context(), facts, "shop"); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Error(err)
	}
}

// Former mappings would leave keys of the new ones out.
func TestOfTooManyMappingsTheFormerOnesAreNotLeft(t *testing.T) {
	facts := &doubttest.Memory{}
	few := spectest.Specs(spectest.Keys("product:{id}").On("shop.product"))
	testbed.Must(t, KeepMappings(t.Context(), facts, "shop", few))
	noise := make([]byte, doubt.MaxFact)
	_, _ = rand.Read(noise)
	many := spectest.Specs(spectest.Keys(hex.EncodeToString(noise) + "{id}"))
	testbed.Must(t, KeepMappings(t.Context(), facts, "shop", many))
	if _, err := Learn(t.Context(), facts, "shop"); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Error(err)
	}
}
