package main

import (
	"os"
	"testing"
)

func TestThePageIsWhatTheSourceSays(t *testing.T) {
	want, err := draw("../..")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../structure.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("docs/structure.md is out of date: go run ./docs/structure > docs/structure.md")
	}
}

// Rooms do not use each other in circles: there is an order in which they can be read.
func TestNoRoomUsesOneThatUsesIt(t *testing.T) {
	pkgs, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	rooms := uses{}
	for _, p := range pkgs {
		for _, to := range p.Imports {
			rooms.add(room(p.ImportPath), room(to))
		}
	}
	all := func(string) bool { return true }
	for r := range rooms {
		if rooms.reaches(r, r, all, map[string]bool{}) {
			t.Errorf("the packages of %s use others that use %s", r, r)
		}
	}
}

func TestADirectArrowIsLeftOutWhereALongerWayLeads(t *testing.T) {
	u := uses{}
	for _, e := range [][2]string{{"a", "b"}, {"b", "c"}, {"a", "c"}, {"a", "d"}} {
		u.add(e[0], e[1])
	}
	all := func(string) bool { return true }
	if !u.leads("a", "c", all) || u.leads("a", "b", all) || u.leads("a", "d", all) {
		t.Error("want the arrow from a to c left out, and no other")
	}
	if u.leads("a", "c", func(s string) bool { return s != "b" }) {
		t.Error("a way leads over a package that is not drawn")
	}
}
