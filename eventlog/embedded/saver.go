package embedded

import "github.com/freshet/freshet/eventlog/checkpoint"

// DefaultSaveEvery is the default of [SaverOptions].Every.
const DefaultSaveEvery = checkpoint.DefaultSaveEvery

// SaverOptions configure [Checkpoint.Run].
type SaverOptions = checkpoint.SaverOptions
