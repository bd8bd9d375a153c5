// Package charset turns the bytes of a text column into utf8mb4 as the server itself would.
package charset
