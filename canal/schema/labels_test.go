package schema

import (
	"testing"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// What a statement says of the labels of an ENUM or SET is what the server then says of them, or is not followed.
func TestLabelsAreFollowedAsTheServersKeepThem(t *testing.T) {
	for _, s := range servers {
		t.Run(string(s.flavor), func(t *testing.T) {
			flavor := event.MySQL
			if s.mariaDB {
				flavor = event.MariaDB
			}
			latin1, ok := charset.Find("latin1", flavor)
			if !ok {
				t.Fatal("no latin1")
			}
			server := s.start(t)
			conn := connect(t, server)
			for _, e := range []struct {
				sql      string
				client   *charset.Charset
				followed bool
			}{
				{"CREATE TABLE t (a ENUM('ä','ö','ü') CHARACTER SET latin1 DEFAULT 'ü')", nil, true},
				{"CREATE TABLE t (a ENUM('\xe4','\xf6') CHARACTER SET latin1)", latin1, true},
				{"CREATE TABLE t (a ENUM('\xe4','\xf6') CHARACTER SET utf8mb4)", latin1, true},
				{"CREATE TABLE t (a SET('Ж','я') CHARACTER SET cp1251)", nil, true},
				{"CREATE TABLE t (a ENUM('€') CHARACTER SET latin1)", nil, true},
				{"CREATE TABLE t (a ENUM('表') CHARACTER SET sjis)", nil, false},
				{"CREATE TABLE t (a ENUM('',0x0000), b ENUM(''))", nil, true},
				{"CREATE TABLE t (a SET('',0x0000), b SET('')) CHARACTER SET latin1", nil, true},
				{"CREATE TABLE t (a ENUM(0x4142, X'43', 'c ') CHARACTER SET latin1)", nil, true},
				{"CREATE TABLE t (a ENUM(0xE4,'1','2') CHARACTER SET latin1)", nil, false},
				{"CREATE TABLE t (a ENUM(0x0041) CHARACTER SET ucs2)", nil, false},
				{"CREATE TABLE t (a ENUM('a','a ') CHARACTER SET binary)", nil, true},
				{"CREATE TABLE t (a ENUM('a','b') CHARACTER SET binary)", nil, true},
				{"CREATE TABLE t (a ENUM('a','b ') CHARACTER SET ucs2)", nil, true},
				{"CREATE TABLE t (a ENUM('a','b ') CHARACTER SET koi8r)", nil, true},
			} {
				names := "utf8mb4"
				if e.client != nil {
					names = e.client.Name()
				}
				for _, sql := range []string{
					"DROP DATABASE IF EXISTS labels", "CREATE DATABASE labels CHARACTER SET utf8mb4", "USE labels", "SET NAMES " +
						names, e.sql, "SET NAMES utf8mb4",
				} {
					if _, err := conn.Execute(sql); err != nil {
						t.Fatalf("%s: %v", sql, err)
					}
				}
				name := ddl.Name{Schema: "labels", Table: "t"}
				statement := ddl.Parse([]byte(e.sql), &ddl.Session{Schema: []byte("labels"), MariaDB: s.mariaDB, Charset: e.client})
				believed := create(statement.Actions[0].Create, charsets{charset: "utf8mb4"})
				if (believed != nil) != e.followed {
					t.Errorf("%s: followed %t, want %t", e.sql, believed != nil, e.followed)
				}
				if believed == nil {
					continue
				}
				if d := difference(believed, actual(t, conn, name), s.mariaDB); d != "" {
					t.Errorf("%s: %s", e.sql, d)
				}
			}
		})
	}
}
