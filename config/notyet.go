package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// notYet is what the file can say and this version does not do. It is refused, never ignored. What an action of a
// mapping lacks is refused where the action is read.
type notYet struct {
	// words are those of its words that a key must not have.
	words map[string]string
}

// unbuilt is the one table of what this version does not do. Who builds something deletes its line.
func unbuilt() notYet {
	return notYet{words: map[string]string{"redis.mode": string(RedisCluster)}}
}

// refuseSettings reports the keys that ask for what is not built.
func (l *loader) refuseSettings() {
	table := unbuilt()
	for _, k := range l.keys {
		values := k.get(l.config)
		switch {
		case strings.Join(values, ",") == strings.Join(k.def, ","):
		case refuses(table.words, k.path, values):
			l.refuse(l.place(k.path), k, values)
		}
	}
}

// refuses reports whether a key has the word that it must not have.
func refuses(words map[string]string, path string, values []string) bool {
	word, is := words[path]
	return is && slices.Contains(values, word)
}

func (l *loader) refuse(at spec.Pos, k key, values []string) {
	if k.list {
		l.Add(at, k.path+" is not supported yet", "remove it")
		return
	}
	l.Add(at, fmt.Sprintf("%s: %s is not supported yet", k.path, values[0]), "write "+k.def[0]+", or remove it")
}
