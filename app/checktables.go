package app

import (
	"context"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
)

func checkTables(ctx context.Context, c *config.Config, o canal.Options, info *canal.SourceInfo, r *Report) {
}
