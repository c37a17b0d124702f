package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Process is a member of a group, as /proc/PID/stat shows it.
type Process struct {
	PID   int
	State byte   // R, S, D, Z, T …; see proc_pid_stat(5). '?' where it couldn't be read
	Comm  string // the name of its program, at most 15 bytes of anything

	threads int
}

// String is "1234 (bash) D".
func (p Process) String() string { return fmt.Sprintf("%d (%q) %c", p.PID, p.Comm, p.State) }

// dead reports whether no thread of p runs any more: only its parent keeps it.
// The leader of a process is a zombie too while its other threads live on.
func (p Process) dead() bool { return (p.State == 'Z' || p.State == 'X') && p.threads <= 1 }

// parseStat reads the text of a /proc/PID/stat file. The name stands in
// parentheses and may itself hold any byte, parentheses too.
func parseStat(text []byte) (Process, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndex(text, []byte(") "))
	if open < 1 || end < open {
		return Process{}, fmt.Errorf("stat %q has no name", text)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	if err != nil || pid <= 0 {
		return Process{}, fmt.Errorf("stat %q has no process id", text)
	}
	fields := bytes.Fields(text[end+2:])
	if len(fields) < 18 {
		return Process{}, fmt.Errorf("stat %q is too short", text)
	}
	if state := fields[0]; len(state) != 1 || !isLetter(state[0]) {
		return Process{}, fmt.Errorf("stat %q: %q is no state of a process", text, state)
	}
	threads, err := strconv.Atoi(string(fields[17]))
	if err != nil {
		return Process{}, fmt.Errorf("stat %q: number of threads: %w", text, err)
	}
	return Process{PID: pid, State: fields[0][0], Comm: string(text[open+1 : end]), threads: threads}, nil
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// errInvisible is the error for a member that our PID namespace doesn't hold:
// cgroup2 lists it as 0. Version 1 leaves it out.
var errInvisible = errors.New("a member is in a PID namespace that we can't see into")

// parsePIDs reads a cgroup.procs file. A process id may come more than once
// (cgroup-v2.rst, "cgroup.procs"). With errInvisible come those that are visible.
func parsePIDs(text []byte) (pids []int, err error) {
	var invisible error
	for line := range bytes.Lines(text) {
		pid, err := strconv.Atoi(string(bytes.TrimSuffix(line, []byte("\n"))))
		if err != nil || pid < 0 {
			return nil, fmt.Errorf("%q is not a process id", line)
		}
		if pid == 0 {
			invisible = errInvisible
			continue
		}
		pids = append(pids, pid)
	}
	return pids, invisible
}

// parseNumber reads a file that holds one number.
func parseNumber(text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a count", text)
	}
	return n, nil
}

// parseKey returns the number behind key in a flat keyed file, a "key number"
// pair a line. A key that isn't there is an error, never 0.
func parseKey(text []byte, key string) (int64, error) {
	for line := range bytes.Lines(text) {
		name, value, ok := bytes.Cut(line, []byte(" "))
		if ok && string(name) == key {
			n, err := parseNumber(value)
			if err != nil {
				return 0, fmt.Errorf("key %s: %w", key, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("no key %s: this kernel doesn't count it", key)
}

// isWord reports whether word is among the words of text, as in cgroup.controllers.
func isWord(text []byte, word string) bool {
	for w := range strings.FieldsSeq(string(text)) {
		if w == word {
			return true
		}
	}
	return false
}

// validName reports whether a group may be called name: letters, digits, '-',
// '_' and '.', beginning with a letter or digit, at most 128 bytes.
func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return name != "" && len(name) <= 128
}
