// Package write turns one action on a key into calls to Redis, and their replies into what it did.
package write
