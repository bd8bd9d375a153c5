package binlog

import (
	"errors"

	"github.com/freshet/freshet/event"
)

// ErrDamaged is wrapped by every error that says that the bytes of an event are not what they should be.
var ErrDamaged = errors.New("damaged event")

// Options of a [Decoder]. The zero value is ready for use.
type Options struct {
	// VerifyChecksums checks the CRC32 of every event that has one; default: checksums are stripped only, since TCP
	// has its own.
	VerifyChecksums bool
}

// Decoder decodes one stream of events. It keeps what earlier events said of later ones: the format, and the plan of
// each table.
type Decoder struct {
	definer Definer
	options Options
}

// New returns a decoder that asks definer which rows are wanted.
func New(definer Definer, o Options) (*Decoder, error) {
	if definer == nil {
		return nil, errors.New("binlog: a decoder needs a definer")
	}
	return &Decoder{definer: definer, options: o}, nil
}

// Reset forgets all: for the beginning of a new connection.
func (d *Decoder) Reset() {}

// Forget forgets the definitions of all tables, so that the Definer is asked again at each table's next TABLE_MAP.
// It is to be called after DDL and when the mappings change, between transactions or statements, not between a
// TABLE_MAP and its rows.
func (d *Decoder) Forget() {}

// Format returns what the newest FORMAT_DESCRIPTION said.
func (d *Decoder) Format() *Format { return nil }

// Split takes an event apart: its header, and its body without checksum. A FORMAT_DESCRIPTION is noted, and resets the
// tables. The body aliases the event.
func (d *Decoder) Split(ev []byte) (Header, []byte, error) { return Header{}, nil, nil }

// TableMap takes the body of a TABLE_MAP.
func (d *Decoder) TableMap(body []byte) error { return nil }

// Rows decodes a rows event (see [Type.IsRows]) and calls each for every row change. The caller has set c.Tx and
// c.Version, whose Row is the ordinal of the last row before this event: 0, or, within a TRANSACTION_PAYLOAD, where
// the rows event before it left it. Rows sets all else in c and counts c.Version.Row up: also over rows of tables
// that are not wanted, for which each is not called. An error of each ends the decoding and is returned as it is.
func (d *Decoder) Rows(h Header, body []byte, c *event.Change, each func(*event.Change) error) error {
	return nil
}

// Payload takes the body of a TRANSACTION_PAYLOAD apart and calls each for every event in it, one after the other,
// without gathering them. Header and body are valid only during the call. An error of each ends it and is returned
// as it is.
func (d *Decoder) Payload(body []byte, each func(h Header, body []byte) error) error { return nil }
