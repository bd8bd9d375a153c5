package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// fakeInvalidations remembers what it was asked for. It knows the table shop.product, and has no Redis without one.
type fakeInvalidations struct {
	none, noRedis bool
	scopes        []Scope
	keys          []string
	remark        string
}

func (f *fixture) invalidations() Invalidations {
	if f.asked.none {
		return nil
	}
	return &f.asked
}

func (f *fakeInvalidations) Invalidate(_ context.Context, s Scope) (Recorded, error) {
	for _, t := range s.Tables {
		if t != "shop.product" {
			return Recorded{}, Unfit("no mapping is for " + t)
		}
	}
	f.scopes = append(f.scopes, s)
	return Recorded{"d4", f.remark}, nil
}

func (f *fakeInvalidations) InvalidateKeys(_ context.Context, keys []string) (Forgotten, error) {
	if f.noRedis {
		return Forgotten{}, NotHere("this process has no Redis: ask an invalidator")
	}
	f.keys = append(f.keys, keys...)
	return Forgotten{len(keys), f.remark}, nil
}

func TestAScopeIsAskedForAndHasTheIDOfItsDoubt(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	c := NewClient(f.url, "hush", nil)
	for _, s := range []Scope{
		{All: true},
		{Pattern: "product:1*"},
		{Since: "10m"},
		{Tables: []string{"shop.product"}, Templates: []string{"product:{id}"}, Mappings: []int{2}, Pattern: "*7"},
	} {
		f.asked.scopes = nil
		f.asked.remark = s.Pattern
		done, err := c.Invalidate(t.Context(), s)
		if err != nil || done != (Recorded{"d4", s.Pattern}) || !reflect.DeepEqual(f.asked.scopes, []Scope{s}) {
			t.Errorf("%+v: %+v, %v, asked for %+v", s, done, err, f.asked.scopes)
		}
	}
	var unfit Unfit
	if _, err := c.Invalidate(t.Context(), Scope{Tables: []string{"shop.none"}}); !errors.As(err, &unfit) ||
		unfit != "no mapping is for shop.none" {
		t.Error(err)
	}
}

func TestKeysAreInvalidatedAtOnceAndCounted(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	f.asked.remark = "the first is odd"
	done, err := NewClient(f.url, "hush", nil).InvalidateKeys(t.Context(), []string{"product:1", "ü"})
	want := Forgotten{2, "the first is odd"}
	if err != nil || done != want || !reflect.DeepEqual(f.asked.keys, []string{"product:1", "ü"}) {
		t.Errorf("%+v, %v, asked for %q", done, err, f.asked.keys)
	}
	f.asked.noRedis = true
	_, err = NewClient(f.url, "hush", nil).InvalidateKeys(t.Context(), []string{"product:1"})
	if err == nil || !strings.Contains(err.Error(), "501") || !strings.Contains(err.Error(), "ask an invalidator") {
		t.Error(err)
	}
}

func TestOnlyWhoHoldsTheTokenInvalidates(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	if _, err := NewClient(f.url, "", nil).Invalidate(t.Context(), Scope{All: true}); err == nil ||
		!strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
	f = start(t, Options{})
	if _, err := NewClient(f.url, "", nil).InvalidateKeys(t.Context(), []string{"a"}); err == nil ||
		!strings.Contains(err.Error(), "set admin.token") {
		t.Error(err)
	}
}

func TestAProcessThatCannotInvalidateSaysSo(t *testing.T) {
	f := startWith(t, &fixture{asked: fakeInvalidations{none: true}}, Options{Token: "hush"})
	_, err := NewClient(f.url, "hush", nil).Invalidate(t.Context(), Scope{All: true})
	if err == nil || !strings.Contains(err.Error(), "501") || !strings.Contains(err.Error(), "ask one that has Redis") {
		t.Error(err)
	}
}

func TestAnInvalidationThatMakesNoSenseIsRefusedInASentence(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	for body, want := range map[string]string{
		`{}`:                                                       "say which keys to forget",
		`{"keys": []}`:                                             "say which keys to forget",
		`{"keys": ["a"], "all": true}`:                             "all stands alone",
		`{"pattern": "a*", "all": true}`:                           "all stands alone",
		`{"since": "10m", "all": true}`:                            "since stands alone",
		`{"since": "10m", "keys": ["a"]}`:                          "since stands alone",
		`{"since": "10m", "pattern": "a*"}`:                        "since stands alone",
		`{"keys": ["a"], "tables": ["shop.a"]}`:                    "keys stand alone",
		`{"keys": ["a"], "pattern": "a*"}`:                         "keys stand alone",
		`{"keys": ["a", ""]}`:                                      "key 2 is empty",
		`{"keys": ["` + strings.Repeat("a", maxKey+1) + `"]}`:      "key 1 has 65537 bytes: at most 65536",
		`{"keys": ["` + strings.Repeat(`a","`, maxKeys) + `a"]}`:   "10001 keys are too many: at most 10000 at once",
		`{"mappings": [1` + strings.Repeat(",1", maxNames) + `]}`:  "more than 1000 tables and mappings",
		`{"pattern": "` + strings.Repeat("a", maxPattern+1) + `"}`: "the pattern has 1025 bytes",
		"{\"keys\": [\"\xff\"]}":                                   "not UTF-8",
		`{"key": "a"}`:                                             "the body must be JSON such as",
		`keys`:                                                     "the body must be JSON such as",
	} {
		code, answer := get(t, "POST", f.url+"/invalidate", "hush", body)
		if code != 400 || !strings.Contains(answer, want) {
			t.Errorf("%.80s: %d %s, want %s", body, code, answer, want)
		}
	}
	code, answer := get(t, "POST", f.url+"/invalidate", "hush", strings.Repeat(" ", maxInvalidation+1))
	if code != 413 || !strings.Contains(answer, "more than 16 MiB") {
		t.Errorf("%d %s", code, answer)
	}
	if len(f.asked.keys)+len(f.asked.scopes) > 0 {
		t.Errorf("something was asked for: %+v", f.asked)
	}
	for _, key := range []string{"\xff", ""} {
		i := Invalidation{Keys: []string{key}}
		if err := i.Validate(); err == nil {
			t.Errorf("%q is a key", key)
		}
	}
	if i := (Invalidation{Scope: Scope{Pattern: "\xff"}}); i.Validate() == nil {
		t.Error("the pattern would be another one on its way")
	}
}

// A body takes several times its length until it is read, so a few long ones at once would take all the memory.
func TestBodiesThatAreReadAtOnceAreAsLongAsOneMayBe(t *testing.T) {
	f := start(t, Options{Token: "hush"})
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /invalidate HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\r\nContent-Length: %d\r\n\r\n{",
		maxInvalidation)
	for f.bodies.TryAcquire(1) {
		f.bodies.Release(1)
		runtime.Gosched()
	}
	done := make(chan error, 1)
	go func() {
		_, err := NewClient(f.url, "hush", nil).InvalidateKeys(t.Context(), []string{"product:1"})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("a body is read while the longest is: %v", err)
	default:
	}
	conn.Close()
	if err := <-done; err != nil || len(f.asked.keys) != 1 {
		t.Errorf("%v, asked for %q", err, f.asked.keys)
	}
	if !f.bodies.TryAcquire(maxInvalidation) {
		t.Error("what was read takes room still")
	}
}
