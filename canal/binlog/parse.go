package binlog

// ParseHeader reads the header of an event. [Decoder.Split] does it too; this is for who only steps over events.
func ParseHeader(ev []byte) (Header, error) { return Header{}, ErrDamaged }

// Ignorable returns nil if a reader of rows may pass over the event unread: its type is known to change nothing, or the
// server flagged it so. Else it returns an error that names the type: what follows the event could not be trusted.
func (h Header) Ignorable() error { return nil }

// ParseRotate reads the body of a ROTATE.
func ParseRotate(body []byte) (Rotate, error) { return Rotate{}, ErrDamaged }

// ParseGTID reads the body of a GTID, GTID_TAGGED, ANONYMOUS_GTID or of MariaDB's GTID, as the header says.
func ParseGTID(h Header, body []byte) (GTID, error) { return GTID{}, ErrDamaged }

// ParseQuery reads the body of a QUERY.
func (d *Decoder) ParseQuery(h Header, body []byte) (Query, error) { return Query{}, ErrDamaged }

// ParseXID reads the body of an XID: the storage engine's number of the transaction that it commits.
func ParseXID(body []byte) (uint64, error) { return 0, ErrDamaged }

// ParseXAPrepare reads the body of an XA_PREPARE.
func ParseXAPrepare(body []byte) (XAPrepare, error) { return XAPrepare{}, ErrDamaged }

// ParseHeartbeat reads the body of a HEARTBEAT of either version.
func ParseHeartbeat(h Header, body []byte) (Heartbeat, error) { return Heartbeat{}, ErrDamaged }

// ParseIncident reads the body of an INCIDENT.
func ParseIncident(body []byte) (Incident, error) { return Incident{}, ErrDamaged }
