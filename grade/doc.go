// Package grade decides what a claim's evidence and the execution of its check
// come to: one verdict out of five, and where it says nothing on the claim, a
// note that says why.
//
// The package is pure: values in, verdict out. It reads no file, no clock and
// no environment, so a verdict can be found again from a record at any time.
//
// Three rules hold everywhere. Evidence that can't decide its claim is refused
// before anything else is looked at. A run that did not reach its own end, for
// whatever reason, never verifies and never contradicts. And what the output
// looks like can only turn contradicted into unrunnable; it never makes or
// unmakes a pass.
package grade
