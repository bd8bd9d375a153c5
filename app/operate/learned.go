package operate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Learned is what is known of a source: what its keys are made of. With Kafka its reader keeps it as facts, and
// invalidators learn it from there.
type Learned struct {
	Source   string
	Mappings []*router.Mapping
	// Hash is that of the mappings, if the reader has kept them.
	Hash string
	// Tables are the definitions of the mapped tables, several of one that has changed.
	Tables []*event.Table
}

// Definitions are the columns of tables that keys are made of, in the form in which they are kept.
type Definitions struct {
	// Used are the columns that mappings used, in lower case.
	Used map[string]bool `json:"used"`
	// Whole says that they are those of all tables that there are.
	Whole  bool           `json:"whole"`
	Tables []*event.Table `json:"tables"`
}

// mappingsFact is what the names of facts that hold mappings begin with.
const mappingsFact = "mappings/"

// DefinitionsFact is the name of the fact that holds the [Definitions] of a source.
func DefinitionsFact(source string) string { return "definitions/" + source }

// KeepMappings keeps the mappings of a source, unless they are kept: for its next start, and for the invalidators. More
// than a fact can hold are not kept, and neither are former ones then: with Kafka nobody answers doubts about the
// source.
func KeepMappings(ctx context.Context, facts doubt.Facts, source string, mappings []spec.Mapping) error {
	text, err := Pack(mappings)
	if err == nil {
		is, failed := facts.Fact(ctx, mappingsFact+source)
		if failed == nil && bytes.Equal(is, text) {
			return nil
		}
		err = failed
	}
	switch {
	case err != nil:
	case len(text) > doubt.MaxFact:
		err = facts.DropFact(ctx, mappingsFact+source)
	default:
		err = facts.SetFact(ctx, mappingsFact+source, text)
	}
	if err != nil {
		return fmt.Errorf("the mappings of source %s cannot be kept: %w", source, err)
	}
	return nil
}

// KeptMappings returns the mappings of a source that are kept; none if they are not, or cannot be read.
func KeptMappings(ctx context.Context, facts doubt.Facts, source string) ([]spec.Mapping, error) {
	text, err := facts.Fact(ctx, mappingsFact+source)
	if err != nil || text == nil {
		return nil, err
	}
	var kept []spec.Mapping
	if Unpack(text, &kept) != nil {
		return nil, nil
	}
	return kept, nil
}

// Sources returns the sources of which something is kept, in order.
func Sources(ctx context.Context, facts doubt.SharedFacts) (names []string, err error) {
	all, err := facts.FactsUnder(ctx, mappingsFact)
	for name := range all {
		names = append(names, strings.TrimPrefix(name, mappingsFact))
	}
	slices.Sort(names)
	return names, err
}

// Learn returns what the reader of a source has kept.
func Learn(ctx context.Context, facts doubt.Facts, source string) (*Learned, error) {
	l, err := learnMappings(ctx, facts, source)
	if err != nil {
		return nil, err
	}
	text, err := facts.Fact(ctx, DefinitionsFact(source))
	if err != nil {
		return nil, err
	}
	var kept Definitions
	if text != nil {
		if err := Unpack(text, &kept); err != nil {
			return nil, fmt.Errorf("what the reader of source %s has kept of its tables: %w", source, err)
		}
	}
	for _, m := range l.Mappings {
		for _, name := range m.Columns() {
			kept.Whole = kept.Whole && kept.Used[strings.ToLower(name)]
		}
	}
	if !kept.Whole {
		return nil, fmt.Errorf("the reader of source %s has not kept which columns its tables have: it does when it "+
			"begins to read, and reaches the source; of very many tables it cannot", source)
	}
	l.Tables = kept.Tables
	return l, nil
}

// errNotKept says that no mappings are kept.
var errNotKept = errors.New("has not kept its mappings: it does when it begins to read, unless they are too many")

// keptMappings returns the mappings that the reader of a source has kept, as they stand in its configuration.
func keptMappings(ctx context.Context, facts doubt.Facts, source string) (specs []spec.Mapping, err error) {
	text, err := facts.Fact(ctx, mappingsFact+source)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, fmt.Errorf("the reader of source %s %w", source, errNotKept)
	}
	if err := Unpack(text, &specs); err != nil {
		return nil, fmt.Errorf("the mappings that the reader of source %s has kept: %w", source, err)
	}
	return specs, nil
}

// learnMappings returns the mappings alone.
func learnMappings(ctx context.Context, facts doubt.Facts, source string) (*Learned, error) {
	specs, err := keptMappings(ctx, facts, source)
	if err != nil {
		return nil, err
	}
	route, err := router.New(specs, router.Options{})
	if err != nil {
		return nil, fmt.Errorf("the mappings that the reader of source %s has kept: %w", source, err)
	}
	return &Learned{Source: source, Mappings: route.Mappings(), Hash: config.MappingsHash(specs)}, nil
}

// LearnAll returns what is kept of all sources: at least one.
func LearnAll(ctx context.Context, facts doubt.SharedFacts) (all []*Learned, err error) {
	return learnEach(ctx, facts, Learn)
}

func learnEach(ctx context.Context, facts doubt.SharedFacts,
	learn func(context.Context, doubt.Facts, string) (*Learned, error),
) (all []*Learned, err error) {
	names, err := Sources(ctx, facts)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("no reader has kept its mappings: each does when it begins to read")
	}
	for _, name := range names {
		l, err := learn(ctx, facts, name)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// maxUnpacked bounds what a fact can hold, in bytes.
const maxUnpacked = 64 << 20

// Pack returns v as a fact: as JSON, compressed.
func Pack(v any) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	err := json.NewEncoder(w).Encode(v)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

// Unpack reads what [Pack] has made. What this version does not know is an error: keys could be missed.
func Unpack(fact []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(fact))
	if err == nil {
		dec := json.NewDecoder(io.LimitReader(r, maxUnpacked))
		dec.DisallowUnknownFields()
		err = dec.Decode(v)
	}
	if err != nil {
		return fmt.Errorf("it cannot be read, so it may be of another version of freshet: run one version, or upgrade "+
			"the invalidators first: %w", err)
	}
	return nil
}
