package connect

import (
	"testing"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
)

func TestADoubtConcernsTheProcessesWhoseKeysItIsAbout(t *testing.T) {
	c := &config.Config{Source: config.Source{Name: "shop"}, EventLog: config.EventLog{Kafka: config.Kafka{Group: "eu"}}}
	for _, x := range []struct {
		name                string
		d                   doubt.Doubt
		reader, invalidator bool
	}{
		{"everybody's", doubt.Doubt{}, true, true},
		{"our source's", doubt.Doubt{Source: "shop"}, true, true},
		{"another source's", doubt.Doubt{Source: "crm"}, false, true},
		{"our group's", doubt.Doubt{Group: "eu"}, false, true},
		{"our group's, of a source", doubt.Doubt{Source: "shop", Group: "eu"}, false, true},
		{"another group's", doubt.Doubt{Group: "us"}, false, false},
	} {
		for readsOnly, want := range map[bool]bool{true: x.reader, false: x.invalidator} {
			if got := concerns(c, readsOnly, &x.d); got != want {
				t.Errorf("%s, reads only %v: %v", x.name, readsOnly, got)
			}
		}
	}
}
