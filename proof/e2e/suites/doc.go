// Package suites runs what others thought of as a load: the test suites of the databases' vendors, with freshet
// attached to the server. Their tests do odd things to tables called t1 to t4, with other columns each time, and drop
// them at once.
//
// freshet must survive them: it neither ends nor panics, its memory is bounded, and it reads on after each test. The
// keys that another reader of binlogs finds must be among those that it deletes, with either event log, both of which
// read along on each server, and however little the binlog says of tables: where that does not tell the columns of one
// that is gone already, the table is in doubt.
//
// The other reader is go-mysql's parser. It shares no code with freshet's, has the values of most types as the server
// prints them, and with FULL metadata the names and labels. mariadb-binlog -vv would say less: it numbers columns and
// labels, and prints FLOAT, TIMESTAMP and text otherwise than the server does.
//
// FRESHET_SOAK=1 runs whole suites (`make soak`), or those of their tests that FRESHET_SUITES names, without those that
// are in the file FRESHET_SUITES_DONE, to which each is added once it has been compared; otherwise a dozen tests that
// once hurt run, to fit `make test`. MySQL's own suites run in a soak only, since they are a download of 340
// MB; `make test` has MySQL read MariaDB's, of which it knows most statements.
package suites
