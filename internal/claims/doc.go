// Package claims reads files of claims: JSON Lines, JSON, YAML and Markdown
// pages with frontmatter (design.md, section 4; grading rules, section 7).
//
// Open finds the sources and makes each readable more than once, standard input
// too; Read streams their claims, once for every pass its caller needs. JSON
// Lines and JSON arrays stream: whatever their length, one claim is in memory
// at a time. Nothing is skipped silently: what is not a claim is an error that
// says where, and reading goes on where the next claim can still be found.
package claims
