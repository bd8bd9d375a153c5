package login

import (
	"crypto/ed25519"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"net"
)

// parsecRequest begins the packet by which MariaDB asks for the plugin parsec, which the library does not know.
const parsecRequest = "\xfeparsec\x00"

const (
	parsecScramble = 32
	// parsecFactor is the most that a server may ask for: 1024 << 3 rounds. A server that nobody has verified must not
	// keep us busy.
	parsecFactor = 3
)

var errParsec = errors.New("the server's answer makes no sense")

// parsec answers a request of the server for the plugin parsec, which is packet, and returns the packet that ends the
// login, as if it had followed that one.
//
// The server sends a scramble; the client asks for the salt with an empty packet; the server sends that with the number
// of rounds; and the client signs the server's scramble and one of its own with a key that it derives from the
// password.
// Source: MariaDB, "Authentication Plugin - PARSEC".
func parsec(c net.Conn, packet []byte, password string) (last []byte, err error) {
	seq, scramble := packet[3], packet[headerLen+len(parsecRequest):]
	if len(scramble) < parsecScramble {
		return nil, errParsec
	}
	if _, err := c.Write([]byte{0, 0, 0, seq + 1}); err != nil {
		return nil, err
	}
	if packet, err = readPacket(c, headerLen+256); err != nil {
		return nil, err
	}
	salt := packet[headerLen:]
	if len(salt) > 0 && salt[0] == 1 { // more of a plugin's data
		salt = salt[1:]
	}
	if len(salt) < 3 || salt[0] != 'P' {
		if isEnd(packet) {
			return numbered(packet, seq), nil
		}
		return nil, errParsec
	}
	if salt[1] > parsecFactor {
		return nil, fmt.Errorf("%w: it asks for 1024 << %d rounds", errParsec, salt[1])
	}
	seed, err := pbkdf2.Key(sha512.New, password, salt[2:], 1024<<salt[1], ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	signed := make([]byte, 2*parsecScramble)
	copy(signed, scramble[:parsecScramble])
	ours := signed[parsecScramble:]
	if _, err := rand.Read(ours); err != nil {
		return nil, err
	}
	answer := append([]byte{parsecScramble + ed25519.SignatureSize, 0, 0, packet[3] + 1}, ours...)
	if _, err := c.Write(append(answer, ed25519.Sign(ed25519.NewKeyFromSeed(seed), signed)...)); err != nil {
		return nil, err
	}
	if packet, err = readPacket(c, headerLen+64<<10); err != nil {
		return nil, err
	}
	return numbered(packet, seq), nil
}

// isEnd reports whether a packet ends a login that was refused.
func isEnd(packet []byte) bool { return len(packet) > headerLen && packet[headerLen] == 0xff }

// numbered is a packet under another number.
func numbered(packet []byte, seq byte) []byte {
	packet[3] = seq
	return packet
}

// readPacket reads one packet with its header, of a size up to a bound.
func readPacket(c net.Conn, bound int) ([]byte, error) {
	packet := make([]byte, headerLen)
	if _, err := io.ReadFull(c, packet); err != nil {
		return nil, err
	}
	size := int(packet[0]) | int(packet[1])<<8 | int(packet[2])<<16
	if headerLen+size > bound {
		return nil, errParsec
	}
	packet = append(packet, make([]byte, size)...)
	_, err := io.ReadFull(c, packet[headerLen:])
	return packet, err
}
