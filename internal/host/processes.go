package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// process is what /proc/PID/stat says of one process; see proc_pid_stat(5).
type process struct {
	pid, parent int
	name, state string
	started     string // in clock ticks since boot, so a reused pid is another process
}

func (p process) String() string { return fmt.Sprintf("%d %s started %s", p.pid, p.name, p.started) }

// parseStat reads a stat file. The name is in parentheses and may hold any byte.
func parseStat(text string) (process, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndex(text, ") ")
	if open < 1 || end < open {
		return process{}, fmt.Errorf("stat %q has no name", text)
	}
	rest := strings.Fields(text[end+2:])
	if len(rest) < 20 {
		return process{}, fmt.Errorf("stat %q is too short", text)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text[:open]))
	if err != nil {
		return process{}, fmt.Errorf("stat %q: pid: %w", text, err)
	}
	parent, err := strconv.Atoi(rest[1])
	if err != nil {
		return process{}, fmt.Errorf("stat %q: parent: %w", text, err)
	}
	return process{pid: pid, parent: parent, name: text[open+1 : end], state: rest[0], started: rest[19]}, nil
}

// descendants describes the live processes below pid. A zombie is not live: it
// holds nothing but its number.
func descendants(pid int) ([]string, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]process{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		p, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		children[p.parent] = append(children[p.parent], p)
	}
	var found []string
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			queue = append(queue, p.pid)
			if p.state != "Z" && p.state != "X" {
				found = append(found, p.String())
			}
		}
	}
	slices.Sort(found)
	return found, nil
}
