package ddl

import (
	"encoding/hex"
	"strconv"
)

// XID returns the identifier of an XA transaction in the one form that this project writes it in, which is the
// servers' own in the binlog: X'6162',X”,1.
func XID(gtrid, bqual []byte, format uint32) string {
	b := make([]byte, 0, 16+2*(len(gtrid)+len(bqual)))
	b = append(b, "X'"...)
	b = hex.AppendEncode(b, gtrid)
	b = append(b, "',X'"...)
	b = hex.AppendEncode(b, bqual)
	b = append(b, "',"...)
	return string(strconv.AppendUint(b, uint64(format), 10))
}

// xa reads XA START, BEGIN, END, PREPARE, COMMIT and ROLLBACK.
func (p *parser) xa() Statement {
	p.advance()
	var st Statement
	switch p.keyword() {
	case "START", "BEGIN":
		st.Verb = XAStart
	case "END":
		st.Verb = XAEnd
	case "PREPARE":
		st.Verb = XAPrepare
	case "COMMIT":
		st.Verb = XACommit
	case "ROLLBACK":
		st.Verb = XARollback
	default:
		return unknown()
	}
	p.advance()
	xid, ok := p.xid()
	if !ok {
		return unknown()
	}
	st.XID = xid
	return st
}

// xid reads gtrid[,bqual[,format]].
func (p *parser) xid() (string, bool) {
	var bqual []byte
	format := uint64(1)
	gtrid, ok := p.bytes()
	if ok && p.acceptSymbol(',') {
		if bqual, ok = p.bytes(); ok && p.acceptSymbol(',') {
			var err error
			format, err = strconv.ParseUint(string(p.tok.text), 10, 32)
			ok = err == nil
		}
	}
	if !ok {
		return "", false
	}
	return XID(gtrid, bqual, uint32(format)), true
}

// bytes reads a string, also one in hexadecimal: 'ab', X'6162', 0x6162.
func (p *parser) bytes() ([]byte, bool) {
	t := p.tok
	switch {
	case t.kind == literal:
		p.advance()
		return p.unquote(t), true
	case t.kind == word && len(t.text) > 2 && t.text[0] == '0' && t.text[1] == 'x':
		p.advance()
		digits := t.text[2:]
		if len(digits)%2 == 1 {
			digits = append([]byte{'0'}, digits...)
		}
		return unhex(digits)
	case p.accept("X") && p.tok.kind == literal && !p.tok.spaced:
		t = p.tok
		p.advance()
		return unhex(t.text)
	}
	return nil, false
}

func unhex(digits []byte) ([]byte, bool) {
	out, err := hex.AppendDecode(nil, digits)
	return out, err == nil
}
