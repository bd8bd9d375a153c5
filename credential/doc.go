// Package credential reads what proves who we are (passwords, tokens, certificates and their keys) at the moment when
// it is needed. A password or token is a text of the configuration, the content of a file, or the output of a command.
// So who rotates it writes a file, and restarts nothing.
//
// Its place on the path: config says where each comes from, and whatever opens a connection asks for it: the source,
// queries, Redis, sentinels, Kafka.
//
//   - [Source.Try] is a login: it reads, and what was refused is read once more before the refusal counts, because it may
//     have been changed between the reading and the login.
//   - [Source.Seldom] is for those who log in often and for short. It begins with what was accepted last, so that a
//     command is not run every second.
//   - [TLS] makes the settings of one connection from the files as they are now.
//
// A command runs without a shell, for at most [CommandTimeout], and ends with everything that it has started. Logins
// that wait for it at the same time share one run. Every result was read after it was asked for: nothing is cached,
// except for Seldom.
//
// What cannot be read is an [Error]. It names the key and what to do, and never holds a secret: of a command it
// repeats the first line of stderr, never of the output. It passes by itself once the file is there again, so it is
// treated as a server that is away.
//
// Everything here may be used concurrently. No goroutine outlives the call that needs it.
package credential
