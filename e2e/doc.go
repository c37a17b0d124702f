// Package e2e holds the tests that see checkcell as its users do, by running
// the built binary, and the tests of the tree's own rules: who imports whom,
// how long files and functions are, which words are not used. It has no code
// of its own and imports nothing of the module.
package e2e
