package event

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNamesComeBack(t *testing.T) {
	for a := ActionDelete; a <= ActionIncr; a++ {
		if back, err := ParseAction(a.String()); back != a || err != nil {
			t.Errorf("%s: %d, %v", a, back, err)
		}
	}
	for i := IntentForget; i <= IntentRemove; i++ {
		if back, err := ParseIntent(i.String()); back != i || err != nil {
			t.Errorf("%s: %d, %v", i, back, err)
		}
	}
	for f := FormJSON; f <= FormString; f++ {
		if back, err := ParseForm(f.String()); back != f || err != nil {
			t.Errorf("%s: %d, %v", f, back, err)
		}
	}
	unknown := Action(0).String() + Action(200).String() + (lastAction + 1).String() + Intent(3).String() +
		Form(200).String()
	if unknown != "unknownunknownunknownunknownunknown" {
		t.Error(unknown)
	}
	for _, name := range []string{"", "unknown", "Delete", "deletes"} {
		_, err1 := ParseAction(name)
		_, err2 := ParseIntent(name)
		_, err3 := ParseForm(name)
		if err1 == nil || err2 == nil || err3 == nil {
			t.Errorf("%q is taken: %v, %v, %v", name, err1, err2, err3)
		}
	}
}

// fields draws what may be null, and what is empty and is not.
var fields = rapid.SliceOf(rapid.OneOf(
	rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOfN(rapid.Byte(), 0, 200),
))

func appended(all [][]byte) (f []byte) {
	for _, v := range all {
		if v == nil {
			f = AppendNull(f)
		} else {
			f = AppendField(f, v)
		}
	}
	return f
}

func TestFieldsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := fields.Draw(t, "fields")
		got, err := Fields(appended(want)).All()
		if len(got) != len(want) || err != nil {
			t.Fatalf("%d of %d fields, %v", len(got), len(want), err)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) || (got[i] == nil) != (want[i] == nil) {
				t.Fatalf("field %d is %q, want %q", i, got[i], want[i])
			}
		}
		if s := AppendField(nil, "text"); !bytes.Equal(s, AppendField(nil, []byte("text"))) {
			t.Fatalf("a string is written as %q", s)
		}
	})
}

func TestDamagedFieldsAreNoticed(t *testing.T) {
	whole := appended([][]byte{[]byte("one"), nil, []byte("three")})
	for name, damaged := range map[string][]byte{
		"cut short":          whole[:len(whole)-1],
		"a length alone":     {5},
		"a length cut short": {0x80},
		"a length too long":  {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"the longest length": {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'x'},
	} {
		if all, err := Fields(damaged).All(); err == nil || all != nil {
			t.Errorf("%s: %q, %v", name, all, err)
		}
	}
	if value, rest, ok := Fields(nil).Next(); value != nil || rest != nil || ok {
		t.Error("there is a field in none")
	}
}

// Appending to a field must not write over the next one.
func TestFieldsHaveNoRoomToGrow(t *testing.T) {
	f := Fields(appended([][]byte{[]byte("one"), []byte("two")}))
	one, rest, _ := f.Next()
	_ = append(one, "XXXX"...)
	if two, _, ok := rest.Next(); string(two) != "two" || !ok {
		t.Errorf("the second is %q", two)
	}
	b, _ := mixed([]Item{{Action: ActionSet}, {Action: ActionDelete}}, []string{"k", "l"}, [][][]byte{{[]byte("m")}, nil})
	_ = append(b.Fields(0), "XXXX"...)
	if b.Key(1) != "l" {
		t.Errorf("the next key is %q", b.Key(1))
	}
}

func TestWhatIsForgottenKeepsItsNoticesAndItsField(t *testing.T) {
	f := appended([][]byte{[]byte("channel"), nil, []byte("stream"), []byte("own"), []byte("value")})
	both := &Effect{Publish: true, Stream: true}
	for _, c := range []struct {
		action Action
		effect *Effect
		want   int
	}{
		{ActionRebuild, nil, 0},
		{ActionHash, nil, 1},
		{ActionRebuild, &Effect{}, 0},
		{ActionSet, &Effect{Stream: true}, 1},
		{ActionRebuild, &Effect{Publish: true}, 2},
		{ActionZSet, both, 3},
		{ActionHash, both, 4},
		{ActionDelete, both, 3},
	} {
		left, ok := Fields(f).Forget(c.action, c.effect)
		all, err := left.All()
		if !ok || err != nil || len(all) != c.want || cap(left) != len(left) || !bytes.HasPrefix(f, left) {
			t.Errorf("%s with %+v: %q, %v, %v", c.action, c.effect, left, ok, err)
		}
	}
	for _, missing := range []Fields{nil, appended([][]byte{nil, nil, nil}), {9}} {
		if left, ok := missing.Forget(ActionHash, both); ok || left != nil {
			t.Errorf("of %q: %q", missing, left)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte{})
	f.Add(appended([][]byte{[]byte("one"), nil, {}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Fields(data).All()
		if err != nil {
			return
		}
		again, err := Fields(appended(all)).All()
		if d := cmp.Diff(all, again); d != "" || err != nil {
			t.Fatalf("%v %s", err, d)
		}
	})
}

// mixed makes a batch of items with their keys and fields, and returns the effects that they have.
func mixed(items []Item, keys []string, fields [][][]byte) (*Batch, []*Effect) {
	var b Batch
	b.Reset()
	b.AddOrigin(Origin{Table: "shop.user", Event: Version{Epoch: 1, File: 2, Pos: 3}})
	var effects []*Effect
	for i, it := range items {
		effects = append(effects, it.Effect)
		if it.Effect == nil && it.Action == ActionDelete && len(fields[i]) == 0 {
			b.Add(append(b.Text(), keys[i]...), it.Row, ActionDelete)
			continue
		}
		it.Key = len(keys[i])
		it.Text = append(append(b.Text(), keys[i]...), appended(fields[i])...)
		b.AddItem(it)
	}
	return &b, effects
}

func TestABatchKeepsWhatItsActionsNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := []*Effect{nil, {As: FormHash}, {As: FormHash}, {Publish: true}} // equal ones are not the same
		n := rapid.IntRange(1, 20).Draw(t, "n")
		items, keys, all := make([]Item, n), make([]string, n), make([][][]byte, n)
		used := map[*Effect]bool{}
		for i := range n {
			items[i] = Item{
				Row:    rapid.Uint32Range(1, 9).Draw(t, "row"),
				Action: Action(rapid.ByteRange(1, uint8(lastAction)).Draw(t, "action")),
				Intent: Intent(rapid.ByteRange(0, 2).Draw(t, "intent")), Effect: rapid.SampledFrom(pool).Draw(t, "effect"),
			}
			keys[i] = rapid.String().Draw(t, "key")
			if items[i].Action != ActionDelete || items[i].Effect != nil {
				all[i] = fields.Draw(t, "fields")
			} else {
				items[i].Intent = IntentForget
			}
			if items[i].Effect != nil {
				used[items[i].Effect] = true
			}
		}
		b, effects := mixed(items, keys, all)
		check := func(b *Batch, what string) {
			if b.Len() != n || len(b.Effects) != len(used) {
				t.Fatalf("%s: %d invalidations, %d effects of %d", what, b.Len(), len(b.Effects), len(used))
			}
			for i, it := range items {
				inv := &b.Invalidations[i]
				got, err := b.Fields(i).All()
				if b.Key(i) != keys[i] || inv.Action != it.Action || inv.Intent != it.Intent || inv.Row != it.Row ||
					b.EffectOf(i) != effects[i] ||
					err != nil || !cmp.Equal(got, all[i], cmp.Comparer(sameFields)) {
					t.Fatalf("%s: %d: %q %+v %q, %v; want %q %+v %q", what, i, b.Key(i), inv, got, err, keys[i], it, all[i])
				}
			}
			if b.Last != b.Version(n-1) {
				t.Fatalf("%s: last %s", what, b.Last)
			}
		}
		check(b, "built")
		c := b.Clone()
		check(c, "cloned")
		order, back := make([]uint32, n), make([]uint32, n)
		for i := range order {
			order[i] = uint32(i)
		}
		order = rapid.Permutation(order).Draw(t, "order")
		arranged := c.Arrange(order)
		for at, i := range order {
			back[i] = uint32(at)
			if arranged.Key(at) != keys[i] || arranged.Version(at) != c.Version(int(i)) || arranged.EffectOf(at) != effects[i] {
				t.Fatalf("%d of %v: %q at %s", at, order, arranged.Key(at), arranged.Version(at))
			}
		}
		check(arranged.Arrange(back), "arranged and back")
		if least := len(b.text) + 8*len(b.Effects); c.Bytes() < least || b.Bytes() < c.Bytes() {
			t.Fatalf("%d bytes, and a clone of %d; at least %d", b.Bytes(), c.Bytes(), least)
		}
		// The first is built on in the same memory: the clone must not change.
		b.Reset()
		if len(b.Effects) != 0 || b.Len() != 0 || len(b.Text()) != 0 || b.Leftover || b.Age != Unknown {
			t.Fatalf("after Reset: %+v", b)
		}
		b.AddOrigin(Origin{})
		other := &Effect{}
		b.AddItem(Item{
			Text: append(b.Text(), bytes.Repeat([]byte("X"), 4000)...), Key: 1000, Action: ActionIncr,
			Effect: other,
		})
		check(c, "cloned before")
		if b.EffectOf(0) != other || len(b.Effects) != 1 {
			t.Fatalf("after Reset: %+v", b.Effects)
		}
	})
}

func sameFields(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) || (a[i] == nil) != (b[i] == nil) {
			return false
		}
	}
	return true
}

// What is taken back leaves nothing behind: not as the fields of the one before either.
func TestWhatIsCutLeavesNothing(t *testing.T) {
	b, _ := mixed(
		[]Item{{Action: ActionDelete}, {Action: ActionSet, Effect: &Effect{}}, {Action: ActionDelete}},
		[]string{"a", "b", "c"}, [][][]byte{nil, {[]byte("m")}, nil},
	)
	b.Cut(3)
	b.Cut(9)
	if b.Len() != 3 || string(b.Text()) != "ab\x02mc" {
		t.Fatalf("nothing to cut: %d, %q", b.Len(), b.Text())
	}
	b.Cut(1)
	if b.Len() != 1 || string(b.Text()) != "a" || len(b.Fields(0)) != 0 {
		t.Fatalf("%d left, %q", b.Len(), b.Text())
	}
	b.Add(append(b.Text(), "d"...), 1, ActionDelete)
	if b.Key(1) != "d" || len(b.Fields(0)) != 0 || len(b.Fields(1)) != 0 {
		t.Fatalf("%q with %q", b.Key(1), b.Fields(1))
	}
	b.Cut(0)
	if b.Len() != 0 || len(b.Text()) != 0 {
		t.Fatalf("%d left, %q", b.Len(), b.Text())
	}
}

// A plain delete is what most invalidations are: nothing is kept for it but the key.
func TestAPlainDeleteHasNothingBesideItsKey(t *testing.T) {
	b, _ := mixed([]Item{{Action: ActionDelete}, {Action: ActionDelete}}, []string{"a", "b"}, make([][][]byte, 2))
	for i := range b.Len() {
		if b.EffectOf(i) != nil || len(b.Fields(i)) != 0 || b.Invalidations[i].Intent != IntentForget {
			t.Errorf("%s: %+v", b.Key(i), b.Invalidations[i])
		}
	}
	if b.Effects != nil {
		t.Error("there are effects")
	}
}
