package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// doubtAbout waits until the mappings are in doubt, and returns the doubt's ID and all templates that are.
func (s *site) doubtAbout(template string) (id string) {
	s.t.Helper()
	s.await(template+" is in doubt", func(st *app.Status) bool {
		for _, d := range st.Doubts {
			if d.Cause == alarm.MappingsChanged && slices.Equal(d.Templates, []string{template}) {
				id = d.ID
			}
		}
		return id != ""
	})
	return id
}

func TestWhatNewMappingsNameCanBeForgotten(t *testing.T) {
	eitherLog(t, whatNewMappingsNameCanBeForgotten, whatNewMappingsNameCanBeForgottenAroundKafka)
}

func whatNewMappingsNameCanBeForgotten(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newSite(t, source)
		s.keys = []string{"product:{id}"}
		s.run().Stop(t, patience)
		s.changesItsMappings()
	})
}

func whatNewMappingsNameCanBeForgottenAroundKafka(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
	s.keys = []string{"product:{id}"}
	s.run().Stop(t, patience)
	s.changesItsMappings()
}

// changesItsMappings adds a template to product:{id}, and then takes that away.
func (s *site) changesItsMappings() {
	t := s.t
	t.Helper()
	s.keys = []string{"product:{id}", "price:{price}"}
	r := s.start("run")
	id := s.doubtAbout("price:{price}")
	for _, key := range []string{"product:1", "price:1", "price:2", "price:x", "other:1"} {
		s.cache(key)
	}
	if out := s.ask("doubts", "answer", id, "--wait"); !strings.Contains(out, " is answered: ") {
		t.Error(out)
	}
	s.freshAgain()
	s.kept("product:1", "price:x", "other:1")
	for _, key := range []string{"price:1", "price:2"} {
		if s.cached(key) {
			t.Errorf("%s is still there", key)
		}
	}

	// Of what no mapping names any more freshet knows nothing. It says so, and does not say that it is forgotten.
	r.Stop(t, patience)
	s.keys = []string{"price:{price}"}
	s.start("run")
	id = s.doubtAbout("product:{id}")
	s.refused(exitFailed, []string{"cannot be answered: no mapping has the key product:{id} any more"}, "doubts", "answer", id,
		"--wait")
	s.kept("product:1")
	s.ask("doubts", "dismiss", id)
	s.freshAgain()
}

// A request that waits for its answer is not dismissed because its mapping has gone meanwhile.
func TestWhatNoMappingNamesAnyMoreIsNotSaidToBeForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	s.keys = []string{"product:{id}", "price:{price}"}
	s.run().Stop(t, patience)
	s.ask("invalidate", "--mapping", "product:{id}")
	s.cache("product:1")
	s.keys = []string{"price:{price}"}
	s.start("run")
	s.await("the request cannot be answered", func(st *app.Status) bool {
		return slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool { return d.Cause == alarm.ByHand && d.Stuck })
	})
	s.kept("product:1")
}
