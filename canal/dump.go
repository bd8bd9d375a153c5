package canal

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
)

// Flags of a dump command.
// Source: MySQL's rpl_constants.h.
const (
	// dumpNonBlock ends the dump at the end of the binlog instead of waiting for more.
	dumpNonBlock = 1 << 0
	// dumpHeartbeatV2 asks for heartbeats with 64-bit positions (MySQL 8.0.26 and later; the bit means something
	// else on MariaDB).
	dumpHeartbeatV2 = 1 << 1
)

// dumpRequest is what a dump begins from.
type dumpRequest struct {
	// gtids is what we have; nil: begin at file and pos.
	gtids *event.GTIDSet
	file  string
	pos   uint64
	// serverID and uuid are what we call ourselves. The server ends an older dump of the same name, which is what
	// frees it of one whose connection it does not yet know to be dead.
	serverID uint32
	uuid     string
	// heartbeat is how often an idle server says that it is alive; 0: never.
	heartbeat time.Duration
	// untilEnd ends the dump at the end of the binlog.
	untilEnd bool
}

// dump asks for the binlog and returns the stream of its events. The session can do nothing else afterwards.
func (s *session) dump(f event.Flavor, q dumpRequest) (*stream, error) {
	// Checksums as the file has them: then the sizes of the events add up to positions.
	set := []string{"SET @source_binlog_checksum='CRC32', @master_binlog_checksum='CRC32'"}
	if q.heartbeat > 0 {
		ns := q.heartbeat.Nanoseconds()
		set = append(set, fmt.Sprintf("SET @source_heartbeat_period=%d, @master_heartbeat_period=%d", ns, ns))
	}
	if f == event.MariaDB {
		// 4: we understand GTIDs. Source: MariaDB's slave.h (MARIA_SLAVE_CAPABILITY_GTID).
		set = append(set, "SET @mariadb_slave_capability=4")
		if q.gtids != nil {
			set = append(set, "SET @slave_connect_state="+quote(q.gtids.String())+", @slave_gtid_strict_mode=1")
		}
	} else {
		set = append(set, "SET @slave_uuid="+quote(q.uuid)+", @replica_uuid="+quote(q.uuid))
	}
	for _, statement := range set {
		if err := s.exec(statement); err != nil {
			return nil, err
		}
	}
	if err := s.register(q.serverID); err != nil {
		// Without the number, which may be another one each time: what is said again is not logged again.
		return nil, fmt.Errorf("register as a replica, which takes the right REPLICATION SLAVE: %w", err)
	}
	command, err := q.command(f)
	if err != nil {
		return nil, err
	}
	if err := s.command(command); err != nil {
		return nil, fmt.Errorf("binlog dump: %w", err)
	}
	return newStream(s.conn), nil
}

// command builds COM_BINLOG_DUMP or COM_BINLOG_DUMP_GTID.
// Source: MySQL Source Code Documentation, "Replication Protocol".
func (q *dumpRequest) command(f event.Flavor) ([]byte, error) {
	var flags uint16
	if q.untilEnd {
		flags |= dumpNonBlock
	}
	if f == event.MySQL {
		flags |= dumpHeartbeatV2
	}
	if q.gtids == nil || f == event.MariaDB {
		b := []byte{mysql.COM_BINLOG_DUMP}
		b = binary.LittleEndian.AppendUint32(b, uint32(max(q.pos, firstEvent)))
		b = binary.LittleEndian.AppendUint16(b, flags)
		b = binary.LittleEndian.AppendUint32(b, q.serverID)
		if q.gtids == nil {
			b = append(b, q.file...)
		}
		return b, nil
	}
	set, err := mysql.ParseMysqlGTIDSet(q.gtids.String())
	if err != nil {
		return nil, fmt.Errorf("gtid set: %w", err)
	}
	data := set.Encode()
	b := []byte{mysql.COM_BINLOG_DUMP_GTID}
	b = binary.LittleEndian.AppendUint16(b, flags)
	b = binary.LittleEndian.AppendUint32(b, q.serverID)
	b = binary.LittleEndian.AppendUint32(b, 0) // no file: the server finds it
	b = binary.LittleEndian.AppendUint64(b, firstEvent)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...), nil
}

// register makes us known to the server as a replica.
func (s *session) register(id uint32) error {
	host, err := os.Hostname()
	if err != nil {
		host = "freshet"
	}
	host = host[:min(len(host), 60)] // older servers keep no more
	b := []byte{mysql.COM_REGISTER_SLAVE}
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, byte(len(host)))
	b = append(b, host...)
	b = append(b, 0, 0)       // user, password: none
	b = append(b, 0, 0)       // port: none
	b = append(b, 0, 0, 0, 0) // rank
	b = append(b, 0, 0, 0, 0) // source id: the server fills it in
	if err := s.command(b); err != nil {
		return err
	}
	_, err = s.conn.ReadOKPacket()
	return err
}

// command sends a command packet.
func (s *session) command(b []byte) error {
	s.conn.ResetSequence()
	return s.conn.WritePacket(append(make([]byte, 4), b...))
}

// freeServerID returns a server id that neither the source nor one of its replicas has. An own id from a connection
// that the server does not yet know to be dead counts as taken too; a configured one is used whatever the others
// are called, since the operator has chosen it.
func (o *Options) freeServerID(info *SourceInfo, taken []uint32) uint32 {
	switch {
	case o.ServerID != 0:
		return o.ServerID
	case o.drawn != info.ServerID && !slices.Contains(taken, o.drawn):
		return o.drawn
	}
	return drawServerID(append(taken, info.ServerID))
}

// drawServerID returns a server id that is not taken, by chance: MariaDB does not say which ones replicas have to a
// user with the documented rights, and a second dump under an id ends the first one. It is far from the small numbers
// that people give.
func drawServerID(taken []uint32) uint32 {
	for {
		if id := rand.Uint32() | 1<<30; !slices.Contains(taken, id) {
			return id
		}
	}
}

// replicaUUID makes a UUID of a server id and a source's name: the same for each connection of one canal.
func replicaUUID(id uint32, source string) string {
	f := fnv.New64a()
	f.Write([]byte(source))
	h := f.Sum64()
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", id, h>>48, 0x8000|h>>36&0xfff, 0x8000|h>>24&0xfff, h&0xffffff)
}
