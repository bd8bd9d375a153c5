package lint

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec/spectest"
)

func TestWhatTheMappingsTouch(t *testing.T) {
	m := spectest.Everything(spectest.Keys("k:{id}", "{{x}}:{table|upper}:{sku}{name}:{00..03}",
		`a*?[b]\`)).On("shop.order_{00..63}")
	var got []string
	for _, x := range Touches(mustNew(t, m, spectest.Keys("*{id}").On("a*.b"))) {
		kind := x.Action.String()
		switch {
		case x.Channel:
			kind = "channel"
		case x.Stream:
			kind = "stream"
		}
		if strings.TrimSuffix(x.Pos.String(), ":10") == x.Pos.String() || x.Template == "" {
			t.Errorf("%+v", x)
		}
		if ok, err := path.Match(x.Pattern, x.Example); !ok || err != nil {
			t.Errorf("%q does not match %q (%v)", x.Pattern, x.Example, err)
		}
		got = append(got, fmt.Sprintf("%s %s %s", kind, x.Example, x.Pattern))
	}
	want := []string{
		"rebuild k:17 k:*", "channel c c", "stream x:17 x:*",
		"rebuild {x}:ORDER_00:1717:00 {x}:*:**:*", `rebuild a*?[b]\ a\*\?\[b\]\\`,
		"hash h:17 h:*", "set s:17 s:*", "zset z:17 z:*", "expire e:17 e:*", "incr g:17 g:*", `delete *17 \**`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
