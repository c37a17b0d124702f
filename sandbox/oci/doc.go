//go:build linux

// Package oci makes cells with an OCI runtime: runc, crun or runsc, run as a
// program with a bundle that is written from the cell's description. The limits,
// the kill and the proof that a cell is empty are ours, by a control group of our
// own that the container is moved to; the walls are the runtime's.
package oci
