// Command generate writes the conversion tables and the list of collations of package charset as two running servers
// have them: go run ./internal/generate -mysql 'root@tcp(127.0.0.1:3306)/' -mariadb 'root@tcp(127.0.0.1:3307)/'.
//
// It needs no privilege and no table: what is asked is CONVERT over every sequence of bytes.
package main

import (
	"bytes"
	"compress/flate"
	"database/sql"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	_ "github.com/go-sql-driver/mysql"
)

// Characters are gone through by the length of their sequences. The sets that are Unicode themselves are computed.
var lengths = map[string]int{
	"big5": 2, "cp932": 2, "eucjpms": 3, "euckr": 2, "gb18030": 4, "gb2312": 2, "gbk": 2, "sjis": 2, "ujis": 3,
}

var computed = []string{"ascii", "binary", "ucs2", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"}

type server struct {
	db     *sql.DB
	flavor string
}

func main() {
	my := flag.String("mysql", "", "data source name of a MySQL server")
	maria := flag.String("mariadb", "", "data source name of a MariaDB server")
	flag.Parse()
	servers := []server{open("mysql", *my), open("mariadb", *maria)}
	must(os.WriteFile("tables.bin", deflate(tables(servers)), 0o644))
	must(os.WriteFile("collations.txt", collations(servers), 0o644))
}

func open(flavor, dsn string) server {
	db, err := sql.Open("mysql", dsn)
	must(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec("set names utf8mb4")
	must(err)
	return server{db, flavor}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func deflate(b []byte) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	must(err)
	_, err = w.Write(b)
	must(err)
	must(w.Close())
	return out.Bytes()
}

// tables writes, for each character set: its name, on which servers it is like this, and the runs of each length.
func tables(servers []server) []byte {
	var out []byte
	for _, name := range names(servers) {
		var same []byte
		var sames []string
		for _, s := range servers {
			if !s.has(name) {
				continue
			}
			b := s.table(name)
			if same == nil || bytes.Equal(same, b) {
				same, sames = b, append(sames, s.flavor)
				continue
			}
			out = entry(out, name, s.flavor, b)
			log.Printf("%s differs on %s", name, s.flavor)
		}
		out = entry(out, name, strings.Join(sames, ","), same)
		log.Printf("%s: %d bytes", name, len(same))
	}
	return out
}

func entry(out []byte, name, flavors string, b []byte) []byte {
	for _, s := range []string{name, flavors, string(b)} {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	return out
}

func names(servers []server) []string {
	var all []string
	for _, s := range servers {
		rows, err := s.db.Query("select character_set_name from information_schema.character_sets")
		must(err)
		for rows.Next() {
			var n string
			must(rows.Scan(&n))
			if !slices.Contains(computed, n) {
				all = append(all, n)
			}
		}
		must(rows.Err())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (s server) has(name string) bool {
	var n int
	must(s.db.QueryRow("select count(*) from information_schema.character_sets where character_set_name = ?",
		name).Scan(&n))
	return n > 0
}

// table returns the runs of all lengths of a character set.
func (s server) table(name string) []byte {
	longest := max(lengths[name], 1)
	out := []byte{byte(longest)}
	for n := 1; n <= longest; n++ {
		out = append(out, runs(s.sequences(name, n))...)
	}
	return out
}

// character is one well-formed sequence: its place among those of its length, and its code point, or -1.
type character struct {
	place int
	point rune
}

// sequences asks for every sequence of n bytes that the server takes for one character.
func (s server) sequences(name string, n int) []character {
	from, to := [4]int{0, 128, 128, 128}, [4]int{255, 255, 255, 255}
	switch {
	case n == 1:
	case n == 2:
		from[1] = 0
	case n == 3: // EUC: only after 8F
		from[0], to[0] = 0x8f, 0x8f
	case n == 4:
		from, to = [4]int{0x81, 0x30, 0x81, 0x30}, [4]int{0xfe, 0x39, 0xfe, 0x39}
	}
	if n == 2 || n == 3 {
		from[0] = max(from[0], 128)
	}
	var all []character
	q := fmt.Sprintf("select hex(convert(convert(x'%%s' using %s) using utf8mb4))", name)
	seq := make([]byte, n)
	batch := make([]string, 0, 512)
	var places []int
	flush := func() {
		if len(batch) > 0 {
			all = append(all, s.ask(batch, places, n == 1 && lengths[name] > 1)...)
			batch, places = batch[:0], places[:0]
		}
	}
	place := 0
	var walk func(i int)
	walk = func(i int) {
		if i == n {
			batch = append(batch, fmt.Sprintf(q, fmt.Sprintf("%x", seq)))
			places = append(places, place)
			if n < 4 {
				places[len(places)-1] = bigEndian(seq)
			}
			place++
			if len(batch) == cap(batch) {
				flush()
			}
			return
		}
		for c := from[i]; c <= to[i]; c++ {
			seq[i] = byte(c)
			walk(i + 1)
		}
	}
	walk(0)
	flush()
	return all
}

func bigEndian(b []byte) int {
	v := 0
	for _, c := range b {
		v = v<<8 | int(c)
	}
	return v
}

// ask runs the queries as one, and keeps the answers of exactly one character. With alone, a byte that is none may be
// the beginning of one.
func (s server) ask(queries []string, places []int, alone bool) []character {
	rows, err := s.db.Query(strings.Join(queries, " union all "))
	must(err)
	defer rows.Close()
	var out []character
	for i := 0; rows.Next(); i++ {
		var h sql.NullString
		must(rows.Scan(&h))
		var b []byte
		_, err := fmt.Sscanf(h.String, "%x", &b)
		if !h.Valid || err != nil {
			continue
		}
		p, n := utf8.DecodeRune(b)
		switch {
		case n != len(b) || (p == utf8.RuneError && n == 1):
		case p == '?' && places[i] != '?':
			if !alone {
				out = append(out, character{places[i], -1})
			}
		default:
			out = append(out, character{places[i], p})
		}
	}
	must(rows.Err())
	return out
}

// runs writes the number of runs of consecutive places with consecutive code points, or none, and each as: distance
// from the end of the one before, length with a low bit for none, and the distance from the code point expected.
func runs(chars []character) []byte {
	var out []byte
	count, place, point := 0, 0, 0
	for i := 0; i < len(chars); {
		j := i + 1
		for j < len(chars) && chars[j].place == chars[j-1].place+1 &&
			(chars[j].point == chars[j-1].point+1 && chars[j].point > 0 || chars[j].point == -1 && chars[i].point == -1) {
			j++
		}
		c := chars[i]
		out = binary.AppendUvarint(out, uint64(c.place-place))
		if c.point < 0 {
			out = binary.AppendUvarint(out, uint64(j-i)<<1|1)
		} else {
			out = binary.AppendUvarint(out, uint64(j-i)<<1)
			out = binary.AppendVarint(out, int64(int(c.point)-point))
			point = int(c.point) + j - i
		}
		place = c.place + j - i
		count++
		i = j
	}
	return append(binary.AppendUvarint(nil, uint64(count)), out...)
}

// collations writes id and name of every collation, which begins with the name of its character set.
func collations(servers []server) []byte {
	names := map[int]string{}
	for _, s := range servers {
		q := "select id, collation_name from information_schema.collations where id is not null and character_set_name is " +
			"not null"
		if s.flavor == "mariadb" {
			q = "select id, full_collation_name from information_schema.collation_character_set_applicability"
		}
		rows, err := s.db.Query(q)
		must(err)
		for rows.Next() {
			var id int
			var name string
			must(rows.Scan(&id, &name))
			if old, ok := names[id]; ok && old != name {
				log.Printf("collation %d is %s and %s", id, old, name)
				continue
			}
			names[id] = name
		}
		must(rows.Err())
	}
	ids := make([]int, 0, len(names))
	for id := range names {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var b bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&b, "%d %s\n", id, names[id])
	}
	return b.Bytes()
}
