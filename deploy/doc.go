// Package deploy is what is shipped with the program, in directories of its own: dashboard, rules, compose. What the
// tests here are about is the image.
package deploy
