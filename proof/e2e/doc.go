// Package e2e holds the end-to-end proof of what freshet promises. Its tests run the built binary between real
// servers, with proxies that break what passes, and kill it with SIGKILL.
//
// What is expected is computed by the database (CONCAT in the transaction that makes the change), and what was done
// is read from a proxy that logs the Redis protocol: never from freshet's own counters or router.
//
// Where more is done to keys than to delete them, every value in Redis is compared with its rows at the end, and
// freshet must have written each kind of value itself while nobody else did (bazaar, verifyValues, verifyWritten).
//
// Random tables, mappings and statements come from package e2e/oracle, which says by triggers and an evaluator of its
// own what is expected of them.
//
// FRESHET_SOAK=1 runs the suites whole (`make soak`); otherwise they are cut to fit `make test`. The seed of every
// random choice is printed and can be set with FRESHET_SEED.
package e2e
