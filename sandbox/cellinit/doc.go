//go:build linux

// Package cellinit is process 1 of a cell, and what is said between it and
// whoever made the cell. Every backend's cells have it, so that steps start and
// end, streams are read and statuses arrive in one way.
//
// An init has one thread and no Go runtime: it is a few functions of this
// program that neither allocate nor grow their stack. What it does is laid out
// beforehand, in ordinary Go, as a Program. There are two ways to become one:
//
//   - A clone of a process of this program goes on in Run: native's cells.
//   - An executable made by WriteExecutable begins in such a function: it is this
//     program's code with another entry point, for containers, where something
//     has to be executed. It is spoken to through its standard streams; see
//     Contained.
package cellinit
