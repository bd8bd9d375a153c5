package app

import (
	"errors"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/router"
)

// CheckMappings is a [config.Check]: it reports what is wrong inside the templates, patterns and predicates of the
// mappings, so that a user sees all problems of a file at once.
func CheckMappings(c *config.Config, report config.Report) {
	_, err := router.New(routerMappings(c.Mappings), router.Options{})
	var problems router.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			report(config.Pos(p.Pos), p.What, p.Do)
		}
	}
}

// routerMappings says in the router's words what the configuration says.
func routerMappings(in []config.Mapping) []router.Mapping {
	out := make([]router.Mapping, len(in))
	for i, m := range in {
		out[i] = router.Mapping{
			Pos:          router.Pos(m.Pos),
			Table:        text(m.Table),
			Events:       router.Events(m.Events),
			Columns:      texts(m.Columns),
			When:         text(m.When),
			Keys:         texts(m.Keys),
			SecondDelete: m.SecondDelete,
		}
	}
	return out
}

func text(t config.Text) router.Text {
	return router.Text{Value: t.Value, Pos: router.Pos(t.Pos), Locate: func(offset int) router.Pos { return router.Pos(t.At(offset)) }}
}

func texts(in []config.Text) []router.Text {
	out := make([]router.Text, len(in))
	for i, t := range in {
		out[i] = text(t)
	}
	return out
}
