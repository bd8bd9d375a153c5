package operate

import (
	"errors"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/router"
)

// CheckMappings is a [config.Check]: it reports what is wrong inside the templates, patterns, predicates and queries of
// the mappings, so that a user sees all problems of a file at once.
func CheckMappings(c *config.Config, report config.Report) {
	_, err := router.New(connect.Mappings(c.Mappings), router.Options{})
	var problems router.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			report(config.Pos(p.Pos), p.What, p.Do)
		}
	}
}

// Remarks returns what may be said of the mappings of a valid configuration without looking at anything else: sentences
// about what works, but hardly as it was meant.
func Remarks(c *config.Config) ([]string, error) {
	route, err := router.New(connect.Mappings(c.Mappings), router.Options{})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range route.Remarks() {
		all = append(all, f.String())
	}
	return all, nil
}
