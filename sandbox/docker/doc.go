//go:build linux

// Package docker makes cells with a Docker Engine on this host, or whatever speaks
// its API there. The daemon makes the container and its walls; process 1 in it, the
// streams, the limits, the kill and the proof that the cell is empty are ours. The
// daemon's word on how a container ended is never taken for an exit code.
package docker
