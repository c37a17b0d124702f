// Package native is the backend without a daemon: a cell is a set of Linux
// namespaces, a private root file system and a control group.
//
// A cell's first process is an init of ours, cloned by a launcher process into
// all its namespaces and its group at once. It sets the cell up, gives up
// every privilege, starts the syntax pass and the check, reaps, and ends the
// cell when its supervisor is gone. The supervisor, this package inside the
// caller's process, keeps the clock, the streams and the group, outside.
//
// Programs that use this package call RunLauncher first thing in main.
package native
