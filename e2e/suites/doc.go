// Package suites runs what others thought of as a load: the test suites of a database's vendor, with freshet attached to
// the server. Their tests do odd things to tables called t1 to t4, with other columns each time, and drop them at once.
//
// freshet must survive them: it neither ends nor panics, its memory is bounded, and it reads on behind each test. The keys
// that another reader of binlogs finds must be among those that it deletes, with either event log, and however little the
// binlog says of tables: where that does not tell the columns of one that is gone already, the table is in doubt.
//
// FRESHET_SOAK=1 runs whole suites (`make soak`), or those of their tests that FRESHET_SUITES names; otherwise a dozen
// tests that once hurt run, to fit `make test`.
//
// MySQL's own suite is not run: its package, mysql-testsuite of Debian sid, is a download of 340 MB for one load more.
package suites
