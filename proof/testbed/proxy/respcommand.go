package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errRESP is what a connection breaks with when its bytes are not RESP.
var errRESP = errors.New("testbed: not RESP")

// parseCommand reads one command, an array of bulk strings or an inline line, and returns its
// words, which alias b, and its length; a length of 0 means that more bytes are needed.
func parseCommand(b []byte, words [][]byte) ([][]byte, int, error) {
	words = words[:0]
	line, at := cutLine(b)
	if at == 0 {
		return words, 0, nil
	}
	if b[0] != '*' {
		return append(words, bytes.Fields(line)...), at, nil
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil {
		return words, 0, fmt.Errorf("%w: command starts with %q", errRESP, line)
	}
	for range n {
		line, used := cutLine(b[at:])
		if used == 0 {
			return words, 0, nil
		}
		if line[0] != '$' {
			return words, 0, fmt.Errorf("%w: word starts with %q", errRESP, line)
		}
		size, err := strconv.Atoi(string(line[1:]))
		if err != nil || size < 0 || size > maxLength {
			return words, 0, fmt.Errorf("%w: word of length %q", errRESP, line)
		}
		at += used
		if len(b) < at+size+2 {
			return words, 0, nil
		}
		words = append(words, b[at:at+size])
		at += size + 2
	}
	return words, at, nil
}

// cutLine returns the first line of b without its end, and how many bytes it took; 0 if it is
// not complete. A line has at least one byte.
func cutLine(b []byte) (line []byte, used int) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, 0
	}
	line = bytes.TrimSuffix(b[:i], []byte("\r"))
	if len(line) == 0 {
		line = []byte(" ")
	}
	return line, i + 1
}

// keySpec says which words of a command are keys.
type keySpec uint8

const (
	firstKey  keySpec = iota // the first word after the name
	allKeys                  // every word after the name
	pairKeys                 // every second word after the name
	numKeys                  // as many as the second word after the name says, from the third on
	noKeys                   // none
	readFirst                // as firstKey, and nothing is written
	readAll                  // as allKeys, and nothing is written
)

// keySpecs holds the commands that are not firstKey.
var keySpecs = map[string]keySpec{
	"DEL": allKeys, "UNLINK": allKeys,
	"MSET": pairKeys, "MSETNX": pairKeys,
	"EVAL": numKeys, "EVALSHA": numKeys, "FCALL": numKeys,

	"GET": readFirst, "TTL": readFirst, "PTTL": readFirst, "TYPE": readFirst, "STRLEN": readFirst,
	"HGET": readFirst, "HGETALL": readFirst, "HMGET": readFirst, "HEXISTS": readFirst, "HLEN": readFirst,
	"SISMEMBER": readFirst, "SMEMBERS": readFirst, "SCARD": readFirst, "LRANGE": readFirst, "LLEN": readFirst,
	"ZSCORE": readFirst, "ZRANGE": readFirst, "ZCARD": readFirst, "XRANGE": readFirst, "XLEN": readFirst,
	"DUMP": readFirst, "HSCAN": readFirst, "SSCAN": readFirst, "ZSCAN": readFirst,
	"EXISTS": readAll, "MGET": readAll, "TOUCH": readAll, "WATCH": readAll,

	"ACL": noKeys, "ASKING": noKeys, "AUTH": noKeys, "CLIENT": noKeys, "CLUSTER": noKeys, "COMMAND": noKeys,
	"CONFIG": noKeys, "DBSIZE": noKeys, "DEBUG": noKeys, "DISCARD": noKeys, "ECHO": noKeys, "EXEC": noKeys,
	"FLUSHALL": noKeys, "FLUSHDB": noKeys, "FUNCTION": noKeys, "HELLO": noKeys, "INFO": noKeys,
	"LASTSAVE": noKeys, "LATENCY": noKeys, "MEMORY": noKeys, "MODULE": noKeys, "MULTI": noKeys,
	"OBJECT": noKeys, "PING": noKeys, "PUBSUB": noKeys, "QUIT": noKeys, "RANDOMKEY": noKeys,
	"READONLY": noKeys, "READWRITE": noKeys, "RESET": noKeys, "ROLE": noKeys, "SAVE": noKeys, "BGSAVE": noKeys,
	"SCAN": noKeys, "SCRIPT": noKeys, "SELECT": noKeys, "SLOWLOG": noKeys, "TIME": noKeys,
	"UNWATCH": noKeys, "WAIT": noKeys, "WAITAOF": noKeys,
}

// opaqueCommands end the one reply for each command: what follows on the connection passes unread.
var opaqueCommands = map[string]bool{
	"SUBSCRIBE": true, "PSUBSCRIBE": true, "SSUBSCRIBE": true, "MONITOR": true, "SYNC": true, "PSYNC": true,
}

// isOpaque says if the command ends the one reply for each command.
func isOpaque(name string, words [][]byte) bool {
	if opaqueCommands[name] {
		return true
	}
	return name == "CLIENT" && len(words) > 1 && strings.EqualFold(string(words[1]), "REPLY")
}

// commandKeys returns the keys among a command's words, and if the command writes them.
func commandKeys(name string, words [][]byte) (keys []string, writes bool) {
	args := words[1:]
	spec := keySpecs[name]
	switch {
	case spec == noKeys || len(args) == 0:
		return nil, false
	case spec == numKeys:
		if len(args) < 2 {
			return nil, false
		}
		n, err := strconv.Atoi(string(args[1]))
		if err != nil || n < 0 || n > len(args)-2 {
			return nil, false
		}
		args = args[2 : 2+n]
	case spec == firstKey || spec == readFirst:
		args = args[:1]
	}
	step := 1
	if spec == pairKeys {
		step = 2
	}
	keys = make([]string, 0, (len(args)+step-1)/step)
	for i := 0; i < len(args); i += step {
		keys = append(keys, string(args[i]))
	}
	return keys, spec != readFirst && spec != readAll
}
