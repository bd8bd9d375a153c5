package binlog

import "testing"

func TestQueryTellsTheSessionItRanIn(t *testing.T) {
	vars := []byte{
		0, 0, 0, 0, 0, // flags
		1, 4, 0, 16, 0, 0, 0, 0, 0, // sql_mode: ANSI_QUOTES, NO_BACKSLASH_ESCAPES
		6, 3, 's', 't', 'd', // catalog
		3, 1, 0, 1, 0, // auto_increment
		4, 28, 0, 45, 0, 8, 0, // gbk, utf8mb4, latin1
		5, 3, 'U', 'T', 'C',
	}
	body := []byte{7, 0, 0, 0, 0, 0, 0, 0, 1, 0x57, 0x05, byte(len(vars)), 0}
	body = append(body, vars...)
	body = append(body, "d\x00CREATE DATABASE x"...)
	d, err := New(nothing{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.ParseQuery(Header{Type: TypeQuery}, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := QuerySQL(body); string(got) != string(q.SQL) {
		t.Errorf("the statement alone is %q, want %q", got, q.SQL)
	}
	for n := range len(body) - len(q.SQL) {
		if got := QuerySQL(body[:n]); got != nil {
			t.Errorf("the statement of %d bytes of %d is %q", n, len(body), got)
		}
	}
	if string(q.Schema) != "d" || string(q.SQL) != "CREATE DATABASE x" || q.ThreadID != 7 || q.ErrorCode != 1367 {
		t.Errorf("got %+v", q)
	}
	if q.SQLMode != SQLModeAnsiQuotes|SQLModeNoBackslashEscapes || q.Charset != 28 || q.ServerCharset != 8 {
		t.Errorf("sql_mode %#x, character sets %d and %d", q.SQLMode, q.Charset, q.ServerCharset)
	}
}
