//go:build linux

// Package cellhost is a cell as its supervisor sees it from the host, whichever
// backend made it: the control group around it, which limits, counts and kills,
// and the receipt, for which the kernel is asked what is in force.
package cellhost
