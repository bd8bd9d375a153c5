// Package query reads the SQL of a rebuild by query: one SELECT with named parameters (:product_id), each of which
// stands for a column of the row that changed. It does no I/O.
//
// It is next to the path of a row change, not on it. The router fills in the parameters ([Query.Params] says which
// columns, in which order), and the invalidator's rebuilds prepare the text ([Query.Text], in which each parameter is a
// ?). Only the [Query.ID] travels between the two: the text itself comes from the configuration of the process that
// runs the query.
//
// # What is read
//
// MySQL's and MariaDB's SQL as they read it with their default quotes: strings in ' and " with backslash escapes and
// doubled quotes, names in `, comments (--, #, /* */) and optimizer hints (/*+ */). Nothing inside them is a parameter,
// and neither are := and ::. Package rebuild sets its sessions so that this holds whatever the server's sql_mode is.
//
// # Guarantees
//
// [Parse] accepts only one statement that reads: it begins with SELECT or WITH … SELECT, writes into nothing (INTO) and
// locks no rows (FOR UPDATE, FOR SHARE, LOCK IN SHARE MODE). Every input gives an answer or an [*Error], never a panic.
// The package has no state; everything may be used by several goroutines at once.
package query
