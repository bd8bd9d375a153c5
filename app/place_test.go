package app

import "testing"

func TestAPlaceThatIsBeforeBoth(t *testing.T) {
	const a = `{"partitions":{"0":{"offset":5,"seen":"s5"},"1":{"offset":7,"seen":"s7"}},"answered":3}`
	for name, c := range map[string]struct{ b, want string }{
		"the same":  {a, a},
		"all later": {`{"partitions":{"0":{"offset":6,"seen":"s6"},"1":{"offset":7,"seen":"s7"},"2":{"offset":1}},"answered":4}`, a},
		"no place":  {"{", a},
		"nothing":   {"", a},
		"one earlier": {
			`{"partitions":{"0":{"offset":9,"seen":"s9"},"1":{"offset":2,"seen":"s2"}},"answered":3}`,
			`{"partitions":{"0":{"offset":5,"seen":"s5"},"1":{"offset":2,"seen":"s2"}},"answered":3}`,
		},
		"one not begun": {
			`{"partitions":{"1":{"offset":9,"seen":"s9"}},"answered":3}`,
			`{"partitions":{"1":{"offset":7,"seen":"s7"}},"answered":3}`,
		},
		"fewer answers": {
			`{"partitions":{"0":{"offset":9,"seen":"s9"},"1":{"offset":8,"seen":"s8"}}}`,
			`{"partitions":{"0":{"offset":5,"seen":"s5"},"1":{"offset":7,"seen":"s7"}}}`,
		},
	} {
		if got := earlierPlace(a, c.b); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
