// Package sandbox runs one untrusted check in a cell of its own and says, out
// of a closed set, how it ended.
//
// The package is the contract and the engine. It names what goes in (Spec,
// Limits), what comes out (Result, Outcome) and what a backend has to provide
// (Backend, Box); Runner drives a backend through the nine phases of a run
// (design.md, section 3):
//
//	create, start, watch, quiesce, collect, settle, record, tear down, result
//
// Three rules hold whatever the backend does. The outcome is settled once, by
// one pure function, before anything is removed. Whoever stops a run says why;
// a cause is never guessed from a signal or an exit code. And unknown is never
// success: the zero Outcome, the zero Reading and the zero Cleanup all mean
// "we do not know".
//
// The package uses the standard library only and starts no process itself.
package sandbox
