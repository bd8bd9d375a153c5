package operate

import (
	"errors"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/lint"
)

// CheckMappings is a [config.Check]: it returns what is wrong inside the templates, patterns, predicates and queries of
// the mappings, so that a user sees all problems of a file at once.
func CheckMappings(c *config.Config) spec.Problems {
	_, err := router.New(c.Mappings, router.Options{})
	var problems spec.Problems
	errors.As(err, &problems)
	return problems
}

// Remarks returns what may be said of the mappings of a valid configuration without looking at anything else: sentences
// about what works, but hardly as it was meant.
func Remarks(c *config.Config) ([]string, error) {
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range lint.Remarks(route) {
		all = append(all, f.String())
	}
	return all, nil
}
