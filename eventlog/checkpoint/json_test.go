package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTextsAreNeverMuchLongerThanTheirBytes(t *testing.T) {
	for _, c := range []string{"<", "&", "\x01", "\xff", `"`, "\u2028", "x", "é"} {
		s := strings.Repeat(c, 100_000/len(c))
		if text, err := json.Marshal(Text(s)); err != nil || len(text) > 134_000 {
			t.Errorf("%q: %d bytes, %v", c, len(text), err)
		}
	}
}
