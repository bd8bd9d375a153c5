package config

import (
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// addresses are host:port of a server to connect to; port is what its servers usually have.
func addresses(port int) kind[string] {
	k := anyText()
	k.name, k.distinct = "host:port", true
	k.parse = func(s string) (string, *fault) {
		return s, addressFault(s, port, false)
	}
	return k
}

// listenAddresses are host:port to listen on, or none. An empty host is every interface, port 0 a free port.
func listenAddresses() kind[string] {
	k := anyText()
	k.name = "host:port"
	k.parse = func(s string) (string, *fault) {
		return s, addressFault(s, 8686, true)
	}
	return orWord(k, "none")
}

// addressFault says what is wrong with an address. It does not show one that may hold a password.
func addressFault(s string, port int, listen bool) *fault {
	example := fmt.Sprintf("127.0.0.1:%d", port)
	if strings.Contains(s, "://") || strings.Contains(s, "@") {
		return &fault{"this is a URL, not an address", "write host:port alone, such as " + example +
			"; user, password and database have their own keys"}
	}
	if strings.ContainsAny(s, `/\`) {
		return &fault{spec.Quote(s) + " is a path, not an address", "write host:port, such as " + example +
			"; connections are made over TCP"}
	}
	if s == "" {
		return &fault{"is empty", "write host:port, such as " + example}
	}
	if strings.Contains(s, ",") {
		return &fault{spec.Quote(s) + " is more than one address", "write each address as its own item"}
	}
	host, service, err := net.SplitHostPort(s)
	if err != nil {
		return &fault{spec.Quote(s) + " is not host:port", "write " + withPort(s, port, example)}
	}
	n, err := strconv.ParseUint(service, 10, 16)
	if err != nil || n == 0 && !listen {
		return &fault{spec.Quote(s) + " has no port from 1 to 65535", "write " + net.JoinHostPort(host, strconv.Itoa(port)) +
			", or the right port"}
	}
	if host == "" && !listen {
		return &fault{spec.Quote(s) + " has no host", "write " + net.JoinHostPort("127.0.0.1", service) +
			", or the right host"}
	}
	if host != "" && !isHost(host) {
		return &fault{spec.Quote(s) + " has no valid host", "write a host name or an IP address before the port"}
	}
	return nil
}

// withPort guesses the address that was meant where the port is missing or an IPv6 address has no brackets.
func withPort(s string, port int, example string) string {
	host := strings.Trim(s, "[]")
	if n, err := strconv.ParseUint(s, 10, 16); err == nil && n > 0 {
		return net.JoinHostPort("127.0.0.1", s) + ", or the right host"
	}
	if isHost(host) {
		return net.JoinHostPort(host, strconv.Itoa(port)) + ", or the right port"
	}
	return "it as " + example
}

// isHost reports whether s is an IP address or can be a host name.
func isHost(s string) bool {
	ip, _, _ := strings.Cut(s, "%")
	if net.ParseIP(ip) != nil {
		return true
	}
	return len(s) <= 253 && regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`).MatchString(s)
}

// loopback reports whether only this machine reaches what listens at the address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// starts are the places where a first start may begin.
func starts() kind[Start] {
	return kind[Start]{
		name:   "now, earliest, gtid:SET or FILE:POSITION",
		parse:  parseStart,
		format: Start.String,
	}
}

func parseStart(s string) (Start, *fault) {
	const write = "write now, earliest, gtid:<set> or <file>:<position>"
	switch {
	case s == string(StartNow), s == string(StartEarliest):
		return Start{Kind: StartKind(s)}, nil
	case strings.HasPrefix(s, "gtid:"):
		set := strings.Join(strings.Fields(strings.TrimPrefix(s, "gtid:")), "")
		if !isMySQLSet(set) && !isMariaDBSet(set) {
			return Start{}, &fault{
				spec.Quote(s) + " holds no GTID set",
				"write gtid: and what SELECT @@gtid_executed (MySQL) or @@gtid_binlog_pos (MariaDB) returns",
			}
		}
		return Start{Kind: StartGTID, GTIDs: set}, nil
	}
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || strings.ContainsAny(s, "/ ") {
		if n := spec.Nearest(s, []string{string(StartNow), string(StartEarliest)}); n != "" {
			return Start{}, &fault{spec.Quote(s) + " is not a start position", fmt.Sprintf("did you mean %q?", n)}
		}
		return Start{}, &fault{spec.Quote(s) + " is not a start position", write}
	}
	pos, err := strconv.ParseUint(s[i+1:], 10, 64)
	if err != nil || pos < 4 {
		// The first event of a binlog file comes after its 4-byte magic number.
		return Start{}, &fault{spec.Quote(s) + " has no position", "write <file>:<position> with a position from 4 on"}
	}
	return Start{Kind: StartFile, File: s[:i], Pos: pos}, nil
}

// isMySQLSet reports whether s has the form uuid[:tag]:interval…, comma-separated.
func isMySQLSet(s string) bool {
	const uuid = `[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}`
	const one = uuid + `(:[A-Za-z_][A-Za-z0-9_]{0,31}|:[0-9]+(-[0-9]+)?)*:[0-9]+(-[0-9]+)?`
	return regexp.MustCompile(`^` + one + `(,` + one + `)*$`).MatchString(s)
}

// isMariaDBSet reports whether s has the form domain-server-sequence, comma-separated.
func isMariaDBSet(s string) bool {
	const one = `[0-9]{1,10}-[0-9]{1,10}-[0-9]{1,20}`
	return regexp.MustCompile(`^` + one + `(,` + one + `)*$`).MatchString(s)
}

// levels are the levels of the log.
func levels() kind[slog.Level] {
	words := []string{"debug", "info", "warn", "error"}
	values := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	return kind[slog.Level]{
		name: list(words, "or"),
		parse: func(s string) (slog.Level, *fault) {
			for i, w := range words {
				if w == s {
					return values[i], nil
				}
			}
			return 0, enumerated(s, words)
		},
		format: func(l slog.Level) string { return strings.ToLower(l.String()) },
	}
}
