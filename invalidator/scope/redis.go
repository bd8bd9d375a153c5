package scope

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Single is a [Redis] that is one server.
type Single struct{ Client *redis.Client }

// Scan implements [Redis].
func (s Single) Scan(ctx context.Context, cursor uint64, glob string, count int64) ([]string, uint64, error) {
	return s.Client.Scan(ctx, cursor, glob, count).Result()
}

// Fields implements [Redis].
func (s Single) Fields(ctx context.Context, key string, cursor uint64, count int64) ([]string, uint64, error) {
	pairs, next, err := s.Client.HScan(ctx, key, cursor, "", count).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, 0, nil
	}
	fields := pairs[:0]
	for i := 0; i+1 < len(pairs); i += 2 {
		fields = append(fields, pairs[i])
	}
	return fields, next, err
}

// withheld reports whether Redis does not tell: the user has no right to ask, or nobody has, since the command was
// disabled.
func withheld(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command")
}

// Server implements [Redis]: the run_id of INFO, which a server draws when it starts, and its master_replid, which is
// another one once it has taken another's data. One that does not say is like any other; the alarm redis_unknown
// says so.
func (s Single) Server(ctx context.Context) (string, error) {
	pipe := s.Client.Pipeline()
	about := []*redis.StringCmd{pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")}
	_, _ = pipe.Exec(ctx) // the errors are the commands'
	var is []string
	for _, a := range about {
		info, err := a.Result()
		if withheld(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(info) {
			name, id, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "run_id" || name == "master_replid" {
				is = append(is, id)
			}
		}
	}
	return strings.Join(is, " "), nil
}

// Size implements [Redis]. Where it is withheld there are none: it is for display only.
func (s Single) Size(ctx context.Context) (int64, error) {
	n, err := s.Client.DBSize(ctx).Result()
	if withheld(err) {
		return 0, nil
	}
	return n, err
}
