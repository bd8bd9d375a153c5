package broker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/freshet/freshet/retry"
)

const (
	// configTries is how often a topic's settings are asked for at a start before it goes on without having seen them.
	configTries = 5
	// configPause is the time between two of them.
	configPause = 500 * time.Millisecond
)

// Fit looks whether topics that exist were made as freshet needs them. What [Client.Check] calls a failure is an error
// of class [Rejected] that says for all of them what is wrong and what fixes it; what it warns of is returned. That
// settings cannot be read is a warning: not everybody gives the right DescribeConfigs. An error of class [Transient]
// may be met by trying again.
func (c *Client) Fit(ctx context.Context, topics []Topic) (warnings []Finding, err error) {
	k := &checker{Client: c}
	for _, t := range distinct(topics) {
		found, err := c.describe(ctx, t.Name)
		if err != nil {
			return nil, err
		}
		for tries := 1; ; tries++ {
			before := k.found
			err := k.settings(ctx, t, found.Partitions)
			if err == nil {
				break
			}
			if Classify(err) != Transient || tries == configTries || ctx.Err() != nil {
				k.warn("", "%v", err)
				break
			}
			k.found = before
			_ = retry.Sleep(ctx, configPause) // the next attempt fails if ctx has ended
		}
	}
	var wrong []string
	for _, f := range k.found {
		if !f.Fail {
			warnings = append(warnings, f)
			continue
		}
		wrong = append(wrong, strings.TrimPrefix(f.What, "kafka: ")+":\n    "+f.Fix)
	}
	if len(wrong) == 0 {
		return warnings, nil
	}
	e := &Error{
		Class: Rejected, What: "look at the topics",
		Err:    errors.New("with these as they are, records would be lost or come out of order"),
		Advice: "\n  " + strings.Join(wrong, "\n  "),
	}
	c.note(e)
	return warnings, e
}
