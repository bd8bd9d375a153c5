package canal

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/freshet/freshet/event"
)

// Servers are the addresses of one source, in the order in which they are preferred, and the one that is read. All that
// asks the source in a process shares one, so that questions go where the stream goes. Safe for concurrent use.
//
// The canal that reads the live stream leads: it chooses (see choice). Without one, as in a process that only deletes
// keys, the marks of another process say which server is read ([Servers.Follow]).
type Servers struct {
	addresses []string

	mu sync.Mutex
	// led says that a canal chooses.
	led bool
	// at is the address that is read; "" while that is not known. server is who answers there.
	at, server string
}

// NewServers returns the servers at the addresses; there must be one at least.
func NewServers(addresses ...string) *Servers { return &Servers{addresses: slices.Clone(addresses)} }

// Current returns the address that is read, or while that is not known, the first one.
func (s *Servers) Current() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != "" {
		return s.at
	}
	return s.addresses[0]
}

// All returns the addresses, in order.
func (s *Servers) All() []string { return slices.Clone(s.addresses) }

// Follow takes note of the server that another process reads, as marks name it.
func (s *Servers) Follow(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.led || server == "" || server == s.server {
		return
	}
	s.at, s.server = "", server
}

// Lost takes note that the server of [Servers.Current] is not the one that is read. It is looked for again.
func (s *Servers) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.led {
		s.at = ""
	}
}

// several reports whether there is a choice.
func (s *Servers) several() bool { return len(s.addresses) > 1 }

// lead has a canal choose from now on: questions go to this address.
func (s *Servers) lead(address, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.led, s.at, s.server = true, address, server
}

// release says that the canal that led has ended.
func (s *Servers) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.led = false
}

// known returns the address that is read, "" if it must be looked for, and the server that is expected there.
func (s *Servers) known() (at, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.several() {
		return s.addresses[0], s.server
	}
	return s.at, s.server
}

// found takes note of where the server is that is expected.
func (s *Servers) found(at, server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.led && s.server == server {
		s.at = at
	}
}

// address returns the address for a question: where the stream goes, or if no address leads to that server, or nobody
// has said which it is, the address that a stream could begin at.
func (o *Options) address(ctx context.Context) (string, error) {
	at, server := o.Servers.known()
	if at != "" {
		return at, nil
	}
	seen := o.look(ctx, &event.Position{})
	for _, c := range seen {
		if c.err == nil && server != "" && c.info.Server == server {
			o.Servers.found(c.address, server)
			return c.address, nil
		}
	}
	order, _ := choice(seen, &event.Position{})
	if len(order) == 0 {
		return "", unanswered(seen)
	}
	if server == "" {
		o.Servers.found(order[0].address, "")
	}
	return order[0].address, nil
}

// Address returns where questions to the source go: to the server that is read.
func Address(ctx context.Context, o Options) (string, error) {
	o, err := o.withDefaults()
	if err != nil {
		return "", err
	}
	return o.address(ctx)
}

// unanswered says why none of several servers can be used.
func unanswered(seen []candidate) error {
	var errs []error
	for _, c := range seen {
		if c.err != nil {
			errs = append(errs, c.err)
		}
	}
	return errors.Join(errs...)
}

// errNoGTIDs says that a server's positions mean nothing on another one.
var errNoGTIDs = errors.New("several source.addresses need gtid_mode=ON on all servers (on nodes of a Galera cluster " +
	"wsrep_gtid_mode=ON), since its positions mean nothing on another one: turn that on, or leave one address")

// ServerProbe is what one of several servers of a source says.
type ServerProbe struct {
	Address string
	// Err is why it could not be read; the rest is not known then.
	Err  error
	Info *SourceInfo
	// ReadOnly is its read_only; Replicates says that it gets transactions from another server, or may.
	ReadOnly, Replicates bool
}

// ProbeServers asks each of several servers about itself; of a single one it says nothing. apart says, if it is not
// empty, which two take writes apart from one another.
func ProbeServers(ctx context.Context, o Options) (all []ServerProbe, apart string) {
	o, err := o.withDefaults()
	if err != nil || !o.Servers.several() {
		return nil, ""
	}
	seen := o.look(ctx, &event.Position{})
	for _, c := range seen {
		all = append(all, ServerProbe{c.address, c.err, c.info, c.readOnly, c.replicates})
	}
	if a, b, is := split(seen); is {
		apart = splitWords(a, b)
	}
	return all, apart
}
