package broker

import (
	"strings"
	"testing"
	"time"
)

func TestACommitsMetadataSaysOnWhichRedisTheWorkWasDone(t *testing.T) {
	on := WorkedOn{Redis: strings.Repeat("r", 950), At: time.UnixMilli(1790000000123)}
	for _, metadata := range []string{
		"", "freshet1", "freshet1;shop,1,2,3/f/4/5", "freshet1;lost,broken,gone;redis,1,2,3/f/4/5",
	} {
		text := on.AddTo(metadata)
		if len(text) > len(metadata)+MaxWorkedOn {
			t.Errorf("%d bytes more", len(text)-len(metadata))
		}
		if rest, is := CutWorkedOn(text); rest != metadata || is.Redis != on.Redis || !is.At.Equal(on.At) {
			t.Errorf("%q is read as %q and %+v", text, rest, is)
		}
		if rest, is := CutWorkedOn(metadata); rest != metadata || is.Redis != "" {
			t.Errorf("%q is read as %q and %+v", metadata, rest, is)
		}
		if text := (WorkedOn{}).AddTo(metadata); text != metadata {
			t.Errorf("%q becomes %q", metadata, text)
		}
	}
	for _, others := range []string{";redis,", "x;redis,r", "x;redis,,5", "x;redis,r,5;more", "x;redis,r,s"} {
		if rest, is := CutWorkedOn(others); rest != others || is.Redis != "" {
			t.Errorf("%q is read as %q and %+v", others, rest, is)
		}
	}
}
