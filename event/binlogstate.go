package event

import "strings"

// ParseBinlogState returns the last transaction of each domain and server in MariaDB's binlog, in files that were
// purged too. A [GTIDSet] has only the last one of each domain.
// Source: MariaDB, "Global Transaction ID", gtid_binlog_state.
func ParseBinlogState(text string) (last []GTID, err error) {
	for one := range strings.SplitSeq(text, ",") {
		set, err := ParseGTIDSet(MariaDB, one)
		if err != nil {
			return nil, err
		}
		set.Each(func(r GTIDRange) {
			r.First.Number = r.Last
			last = append(last, r.First)
		})
	}
	return last, nil
}
