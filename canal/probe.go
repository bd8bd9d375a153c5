package canal

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// SourceInfo is what the source says of itself.
type SourceInfo struct {
	Flavor  event.Flavor
	Version string
	// Service is who runs it for us. Known after [Probe] only.
	Service Service
	// Server is the server's identity, as in [event.Position].Server: MySQL server_uuid; MariaDB server_uid, where it
	// has one, and server_id.
	Server   string
	ServerID uint32
	// Process tells apart servers of one identity: where it runs, and since when. "" where it was not asked, or does not
	// say.
	Process string
	// GTID says whether positions are kept by GTID: always on MariaDB, on MySQL with gtid_mode=ON.
	GTID bool
	// GTIDMode is MySQL's gtid_mode; "" on MariaDB.
	GTIDMode string
	// OwnGTIDs says that the numbers of MariaDB's transactions are this server's own, and those of another one mean
	// others: it is a node of a Galera cluster, with wsrep_gtid_mode OFF, which is the default.
	// Source: MariaDB, "Using MariaDB GTIDs with MariaDB Galera Cluster".
	OwnGTIDs bool
	// LogBin says whether there is a binlog at all.
	LogBin bool

	// Executed is what has been executed: MySQL gtid_executed (visible to everybody), MariaDB gtid_binlog_pos and
	// gtid_slave_pos (a commit may stand in them before it is visible). Owned are MySQL's transactions that are about
	// to be committed, Purged those whose binlogs are gone.
	Executed, Owned, Purged event.GTIDSet
	// Replicated is MariaDB's gtid_slave_pos.
	Replicated event.GTIDSet
	// File and Pos are where the binlog ends.
	File string
	Pos  uint64

	// The settings of the server that decide what the binlog holds; sessions may change some of them for
	// themselves. "" where the server does not know the setting.
	BinlogFormat, RowImage, RowMetadata, RowValueOptions, Checksum string
	TransactionCompression                                         bool
	// LogReplicaUpdates says that what the server replicates is in its binlog as well; Galera that it is a node of such
	// a cluster.
	LogReplicaUpdates, Galera bool
	// SyncBinlog and FlushLog are sync_binlog and innodb_flush_log_at_trx_commit: with anything but 1 a crash of the
	// machine loses transactions that were read. "" where the server does not know them.
	SyncBinlog, FlushLog string
	// Lacks are reasons for which changes of wanted tables are not in the binlog. Known after [Probe] only.
	Lacks []Lack
	// Retention is how long binlogs are kept. Its Oldest is known after [Probe] only.
	Retention Retention
	// SemiSync says that commits wait for a replica's acknowledgement, for SemiSyncTimeout at most; before they
	// become visible if SemiSyncWaitPoint is AFTER_SYNC.
	SemiSync          bool
	SemiSyncWaitPoint string
	SemiSyncTimeout   time.Duration
	// NetWriteTimeout is after how long the server drops a reader who takes nothing.
	NetWriteTimeout time.Duration
	// Files are the binlog files, oldest first.
	Files []BinlogFile
	// Grants are our own, as SHOW GRANTS prints them.
	Grants []string
	// Replicas are the server ids of the connected replicas; nil if we may not know.
	Replicas []uint32
}

// BinlogFile is one binlog file of the source.
type BinlogFile struct {
	Name string
	// Size is in bytes.
	Size uint64
}

// Probe connects to the source and asks it about itself. What we may not ask stays empty.
func Probe(ctx context.Context, o Options) (*SourceInfo, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.proxy(); err != nil {
		return nil, err
	}
	info, err := o.identify(s)
	if err != nil {
		return nil, err
	}
	if err := s.settings(info); err != nil {
		return nil, err
	}
	if info.LogBin {
		// Each of these needs a right that we may lack: the grants tell.
		info.Files, _ = s.binlogFiles()
		_ = s.binlogEnd(info)
		info.Retention.Oldest, _ = o.oldestBinlog(ctx, s, info, info.Retention.Soon || info.Retention.Unknown)
	}
	info.Lacks = o.lacks(s, info)
	if rows, err := s.rows("SHOW GRANTS"); err == nil {
		for _, r := range rows {
			info.Grants = append(info.Grants, r[0])
		}
	}
	info.Replicas = s.replicas(info)
	return info, nil
}

// identify asks who the server is and what it has executed.
func (o *Options) identify(s *session) (*SourceInfo, error) {
	info := &SourceInfo{Flavor: event.MySQL}
	r, err := s.row("SELECT VERSION(), @@server_id, @@log_bin")
	if err != nil {
		return nil, err
	}
	info.Version = r[0]
	if err := imitation(s.address, info.Version, s.conn.GetServerVersion()); err != nil {
		return nil, err
	}
	info.LogBin = r[2] == "1"
	id, err := strconv.ParseUint(r[1], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("server_id: %w", err)
	}
	info.ServerID = uint32(id)
	if strings.Contains(info.Version, "MariaDB") {
		info.Flavor = event.MariaDB
	}
	if o.Flavor != "" && o.Flavor != info.Flavor {
		return nil, fmt.Errorf("source %s is %s %s, but source.flavor says %s", s.address, info.Flavor, info.Version,
			o.Flavor)
	}
	if info.Flavor == event.MariaDB {
		return info, s.identifyMariaDB(info)
	}
	return info, s.identifyMySQL(info)
}

func (s *session) identifyMySQL(info *SourceInfo) error {
	r, err := s.row("SELECT @@server_uuid, @@global.gtid_mode")
	if err != nil {
		return err
	}
	info.Server, info.GTIDMode = r[0], r[1]
	info.GTID = info.GTIDMode == "ON"
	return s.executed(info)
}

// process asks which process the server is. The time at which it was started does not change with its clock: it is what
// is left of the statement's time without the uptime.
func (s *session) process(f event.Flavor) string {
	status := "performance_schema.global_status"
	if f == event.MariaDB {
		status = "information_schema.GLOBAL_STATUS"
	}
	r, err := s.row("SELECT CONCAT_WS(' ', @@hostname, @@port, @@datadir, UNIX_TIMESTAMP() - VARIABLE_VALUE) FROM " +
		status + " WHERE VARIABLE_NAME = 'Uptime'")
	if err != nil {
		return "" // it is not needed where identities differ
	}
	return r[0]
}

// executed asks what has been executed.
func (s *session) executed(info *SourceInfo) error {
	if info.Flavor == event.MariaDB {
		return s.mariaDBGTIDs(info)
	}
	return s.mysqlGTIDs(info)
}

// mysqlGTIDs asks what has been executed. gtid_owned comes first: a transaction that leaves it until gtid_executed is
// asked is in the latter.
func (s *session) mysqlGTIDs(info *SourceInfo) error {
	r, err := s.row("SELECT @@global.gtid_owned, @@global.gtid_executed, @@global.gtid_purged")
	if err != nil {
		return err
	}
	if info.Owned, err = parseOwned(r[0]); err != nil {
		return fmt.Errorf("gtid_owned: %w", err)
	}
	if info.Executed, err = event.ParseGTIDSet(event.MySQL, r[1]); err != nil {
		return fmt.Errorf("gtid_executed: %w", err)
	}
	if info.Purged, err = event.ParseGTIDSet(event.MySQL, r[2]); err != nil {
		return fmt.Errorf("gtid_purged: %w", err)
	}
	return nil
}

func (s *session) identifyMariaDB(info *SourceInfo) error {
	info.GTID = true
	info.Server = strconv.FormatUint(uint64(info.ServerID), 10)
	r, err := s.row("SELECT @@server_uid")
	if err == nil {
		info.Server = r[0] + "/" + info.Server
	} else if e, ok := retry.ServerError(err); !ok || e.Code != errUnknownVariable {
		return err
	}
	v, err := s.pairs("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_gtid_mode')")
	if err != nil {
		return err
	}
	info.OwnGTIDs = v["wsrep_on"] == "ON" && v["wsrep_gtid_mode"] != "ON"
	return s.executed(info)
}

// HasGTIDsOfAll reports whether a position by GTID means the same on this server and on others; else why not is a
// setting and its value.
func (i *SourceInfo) HasGTIDsOfAll() (is bool, why string) {
	if i.OwnGTIDs {
		return false, "wsrep_gtid_mode is OFF"
	}
	return i.GTID, "gtid_mode is " + i.GTIDMode
}

func (s *session) mariaDBGTIDs(info *SourceInfo) error {
	r, err := s.row("SELECT @@global.gtid_binlog_pos, @@global.gtid_slave_pos")
	if err != nil {
		return err
	}
	if info.Executed, err = event.ParseGTIDSet(event.MariaDB, r[0]); err != nil {
		return fmt.Errorf("gtid_binlog_pos: %w", err)
	}
	if info.Replicated, err = event.ParseGTIDSet(event.MariaDB, r[1]); err != nil {
		return fmt.Errorf("gtid_slave_pos: %w", err)
	}
	info.Executed.Union(&info.Replicated)
	return nil
}

// settings asks for what decides the content of the binlog.
func (s *session) settings(info *SourceInfo) error {
	v, err := s.pairs("SHOW GLOBAL VARIABLES WHERE Variable_name LIKE 'binlog%' OR Variable_name LIKE 'rpl_semi_sync%' " +
		"OR Variable_name IN ('expire_logs_days', 'net_write_timeout', 'basedir', 'aurora_version', 'log_replica_updates', 'log_slave_updates', 'wsrep_on', 'sync_binlog', 'innodb_flush_log_at_trx_commit')")
	if err != nil {
		return err
	}
	info.BinlogFormat = v["binlog_format"]
	info.RowImage = v["binlog_row_image"]
	info.RowMetadata = v["binlog_row_metadata"]
	info.RowValueOptions = v["binlog_row_value_options"]
	info.Checksum = v["binlog_checksum"]
	// Both names where the server knows both; one that knows neither logs them.
	info.LogReplicaUpdates = v["log_replica_updates"] != "OFF" && v["log_slave_updates"] != "OFF"
	info.Galera = v["wsrep_on"] == "ON"
	info.SyncBinlog, info.FlushLog = v["sync_binlog"], v["innodb_flush_log_at_trx_commit"]
	info.TransactionCompression = v["binlog_transaction_compression"] == "ON"
	info.Retention.fromSettings(v)
	info.Service = serviceOf(info.Version, v)
	if info.Service == RDS || info.Service == Aurora {
		info.Retention.fromRDS(s)
	}
	// MySQL has renamed them from master to source; MariaDB has not.
	for _, name := range []string{"source", "master"} {
		prefix := "rpl_semi_sync_" + name + "_"
		if v[prefix+"enabled"] == "ON" {
			info.SemiSync = true
			info.SemiSyncWaitPoint = v[prefix+"wait_point"]
			ms, _ := strconv.ParseInt(v[prefix+"timeout"], 10, 64)
			info.SemiSyncTimeout = time.Duration(ms) * time.Millisecond
		}
	}
	info.NetWriteTimeout = seconds(v["net_write_timeout"])
	return nil
}

func seconds(s string) time.Duration {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// binlogEnd asks where the binlog ends.
func (s *session) binlogEnd(info *SourceInfo) error {
	var err error
	info.File, info.Pos, err = s.logStatus(info.Flavor)
	return err
}

// logStatus asks where the binlog ends. MySQL has renamed the statement in 8.2.
func (s *session) logStatus(f event.Flavor) (file string, pos uint64, err error) {
	var r []string
	for _, q := range logStatusStatements(f) {
		r, err = s.row(q)
		if e, answered := retry.ServerError(err); !answered || e.Code != mysql.ER_PARSE_ERROR {
			break // any other refusal is what the operator must hear of
		}
	}
	if err != nil {
		return "", 0, err
	}
	pos, err = strconv.ParseUint(r[1], 10, 64)
	return r[0], pos, err
}

// end returns where the binlog ends.
func (s *session) end(f event.Flavor) (binlogPos, error) {
	file, pos, err := s.logStatus(f)
	if err != nil {
		return binlogPos{}, err
	}
	return binlogPosOf(file, pos)
}

func logStatusStatements(f event.Flavor) []string {
	if f == event.MariaDB {
		return []string{"SHOW MASTER STATUS"}
	}
	return []string{"SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"}
}

// binlogFiles lists the binlog files, oldest first.
func (s *session) binlogFiles() ([]BinlogFile, error) {
	rows, err := s.rows("SHOW BINARY LOGS")
	if err != nil {
		return nil, err
	}
	files := make([]BinlogFile, len(rows))
	for i, r := range rows {
		size, err := strconv.ParseUint(r[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("SHOW BINARY LOGS: size of %s: %w", r[0], err)
		}
		files[i] = BinlogFile{Name: r[0], Size: size}
	}
	return files, nil
}

// replicas lists the server ids of the connected replicas; nil if we may not know.
func (s *session) replicas(info *SourceInfo) []uint32 {
	rows, err := s.rows("SHOW SLAVE HOSTS")
	if err != nil && info.Flavor == event.MySQL {
		rows, err = s.rows("SHOW REPLICAS")
	}
	if err != nil {
		return nil
	}
	ids := []uint32{}
	for _, r := range rows {
		if id, err := strconv.ParseUint(r[0], 10, 32); err == nil {
			ids = append(ids, uint32(id))
		}
	}
	return ids
}
