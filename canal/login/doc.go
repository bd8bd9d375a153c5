// Package login opens sessions on the source, and decides what may be sent to a server to prove who we are.
//
// A server chooses how its client proves itself, and it does so before anybody has proved who the server is. So a
// password never leaves in clear to a server of which we only have the name: mysql_clear_password is answered over TLS
// with a verified certificate and nowhere else. The other plugins that the client knows are answered on any line:
//
//   - mysql_native_password, ed25519 and parsec send an answer to the server's challenge, from which a weak password
//     can be guessed;
//   - sha256_password and caching_sha2_password may send the password itself, under TLS or encrypted with a key that
//     the server names. Nobody who only listens can read it. Somebody who stands between us and the server, and answers
//     for it, can: only a verified certificate keeps such a one out.
//
// Source: MySQL Reference Manual, "Client-Side Cleartext Pluggable Authentication", "Caching SHA-2 Pluggable
// Authentication".
package login
