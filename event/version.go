package event

import (
	"cmp"
	"fmt"
)

// Version orders the changes of one source. It is made of where the change stands in the binlog, so a replay of
// the same binlog gives the same version. Versions of different sources are not comparable; those of different
// epochs of one source are ordered, but say nothing about which value is newer.
type Version struct {
	// Epoch rises at every discontinuity of the source: another server identity, or a position that moved back.
	Epoch uint32
	// File is the number of the binlog file (112 for binlog.000112).
	File uint32
	// Row is the ordinal of the row within its rows event, or within its TRANSACTION_PAYLOAD event. It begins at 1,
	// so that the zero ordinal stands for "before the first row".
	Row uint32
	// Pos is the byte position where the rows event (or the payload event around it) begins in the file. Wider
	// than the protocol's 32 bits, which wrap above 4 GiB.
	Pos uint64
}

// Compare returns -1, 0 or 1 as v is before, the same as, or after o.
func (v Version) Compare(o Version) int {
	return cmp.Or(
		cmp.Compare(v.Epoch, o.Epoch),
		cmp.Compare(v.File, o.File),
		cmp.Compare(v.Pos, o.Pos),
		cmp.Compare(v.Row, o.Row),
	)
}

// IsZero reports whether v is the zero version, which is before every other.
func (v Version) IsZero() bool { return v == Version{} }

// String returns epoch/file/position/row, all decimal.
func (v Version) String() string {
	return fmt.Sprintf("%d/%d/%d/%d", v.Epoch, v.File, v.Pos, v.Row)
}

// MarshalText implements [encoding.TextMarshaler].
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (v *Version) UnmarshalText(text []byte) (err error) {
	*v, err = ParseVersion(string(text))
	return err
}

// ParseVersion is the inverse of [Version.String].
func ParseVersion(s string) (Version, error) {
	var v Version
	var rest string
	n, _ := fmt.Sscanf(s+" .", "%d/%d/%d/%d %s", &v.Epoch, &v.File, &v.Pos, &v.Row, &rest)
	if n != 5 || rest != "." || v.String() != s {
		return Version{}, fmt.Errorf("version %q: want epoch/file/position/row", s)
	}
	return v, nil
}
