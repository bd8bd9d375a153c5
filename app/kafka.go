package app

import (
	"context"
	"errors"
)

func (p *pipeline) buildKafka(context.Context) error { return errors.New("x") }
