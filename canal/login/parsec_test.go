package login

import (
	"bytes"
	"crypto/ed25519"
	"crypto/pbkdf2"
	"crypto/sha512"
	"crypto/tls"
	"net"
	"strings"
	"testing"
)

// parsecServer logs one client in by the plugin parsec, whose user has the password.
// Source: MariaDB, "Authentication Plugin - PARSEC".
type parsecServer struct {
	*impostor
	factor byte
	more   string // what comes before the salt
	says   string
}

func (p *parsecServer) answer(c net.Conn, seq byte) {
	scramble := strings.Repeat("server's", 4)
	send(c, seq, parsecRequest+scramble)
	body, seq, err := p.receive(c)
	if err != nil || len(body) != 0 {
		p.says = "it does not ask for the salt"
		return
	}
	salt := "eighteen bytes are"
	send(c, seq, p.more+"P"+string(p.factor)+salt)
	body, seq, err = p.receive(c)
	if err != nil || len(body) != parsecScramble+ed25519.SignatureSize {
		p.says = "it does not answer"
		return
	}
	seed, err := pbkdf2.Key(sha512.New, password, []byte(salt), 1024<<p.factor, ed25519.SeedSize)
	if err != nil {
		p.says = err.Error()
		return
	}
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	if !ed25519.Verify(public, append([]byte(scramble), body[:parsecScramble]...), body[parsecScramble:]) {
		p.says = "the signature is wrong"
	}
	send(c, seq, string(p.then))
	_, _, _ = p.receive(c)
}

func TestTheLoginByParsec(t *testing.T) {
	ok := "\x00\x00\x00\x02\x00\x00\x00"
	for name, c := range map[string]struct {
		secure       bool
		factor       byte
		more, then   string
		wants, heard string
	}{
		"on any line":              {then: ok},
		"more rounds":              {then: ok, factor: 3},
		"as more of a plugin":      {then: ok, more: "\x01"},
		"over TLS":                 {then: ok, secure: true},
		"a wrong password":         {then: "\xff\x15\x04#28000Access denied", wants: "Access denied"},
		"rounds that keep us busy": {then: ok, factor: 40, wants: "makes no sense", heard: "it does not answer"},
		"what is no salt":          {then: ok, more: "X", wants: "makes no sense", heard: "it does not answer"},
		"an error instead of a salt": {
			then: ok, more: "\xff\x15\x04#28000Access denied", wants: "Access denied", heard: "it does not answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &parsecServer{factor: c.factor, more: c.more}
			i, address := newImpostor(t, c.secure, "", c.then)
			p.impostor, i.plugin = i, p.answer
			var conf *tls.Config
			if c.secure {
				conf = i.roots
			}
			err := connect(t, address, conf)
			if c.wants == "" && err != nil || c.wants != "" && (err == nil || !strings.Contains(err.Error(), c.wants)) {
				t.Errorf("%v, want %q", err, c.wants)
			}
			<-i.served
			if p.says != c.heard {
				t.Errorf("the server says %q, want %q", p.says, c.heard)
			}
			if bytes.Contains(i.heard.Bytes(), []byte(password)) {
				t.Error("the server was told the password")
			}
		})
	}
}
