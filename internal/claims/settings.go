package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/checkcell/checkcell/sandbox"
)

// Setting is what a claim asks for in one regard. Its zero value asks nothing.
type Setting[T any] struct {
	value T
	set   bool
}

// Set is the setting that asks for value.
func Set[T any](value T) Setting[T] { return Setting[T]{value, true} }

// Value returns what is asked for; ok is false where nothing is.
func (s Setting[T]) Value() (value T, ok bool) { return s.value, s.set }

func (s Setting[T]) put(into *T) {
	if s.set {
		*into = s.value
	}
}

// Settings is what a claim asks of its cell, by the names of the flags. It is a
// wish: the caller's own limits bound it.
type Settings struct {
	Image        Setting[string]
	Timeout      Setting[time.Duration]
	ParseTimeout Setting[time.Duration]
	CPUTime      Setting[sandbox.Limit[time.Duration]]
	CPUs         Setting[sandbox.Limit[float64]]
	Memory       Setting[sandbox.Limit[sandbox.Bytes]]
	PIDs         Setting[sandbox.Limit[int64]]
	StdoutCap    Setting[sandbox.Bytes]
	StderrCap    Setting[sandbox.Bytes]
	Disk         Setting[sandbox.Bytes]
	Inodes       Setting[int64]
	NoFile       Setting[int64]
}

// Over returns l with the limits that s asks for in the place of its own.
func (s Settings) Over(l sandbox.Limits) sandbox.Limits {
	s.Timeout.put(&l.Wall)
	s.ParseTimeout.put(&l.Parse)
	s.CPUTime.put(&l.CPUTime)
	s.CPUs.put(&l.CPUs)
	s.Memory.put(&l.Memory)
	s.PIDs.put(&l.Processes)
	s.StdoutCap.put(&l.Stdout)
	s.StderrCap.put(&l.Stderr)
	s.Disk.put(&l.Disk)
	s.Inodes.put(&l.Inodes)
	s.NoFile.put(&l.OpenFiles)
	return l
}

// takeSettings takes the settings out of o. It refuses what no run could have.
func (o object) takeSettings(s *Settings) (errs []error) {
	spelled := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(o)) {
		name := strings.ReplaceAll(key, "_", "-")
		known, err := s.set(name, o[key])
		if !known {
			continue
		}
		delete(o, key)
		if other, twice := spelled[name]; twice {
			err = fmt.Errorf("%s is there too; remove one", other)
		}
		spelled[name] = key
		if err != nil {
			errs = append(errs, keyed(key, err))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if err := s.Over(sandbox.DefaultLimits()).Validate(); err != nil {
		errs = split(err)
	}
	return errs
}

// set reads the setting called name; known is false if there is none.
func (s *Settings) set(name string, raw json.RawMessage) (known bool, err error) {
	switch name {
	case "image":
		err = read(&s.Image, raw, imageName)
	case "timeout":
		err = read(&s.Timeout, raw, duration)
	case "parse-timeout":
		err = read(&s.ParseTimeout, raw, duration)
	case "cpu-time":
		err = read(&s.CPUTime, raw, orUnlimited(duration))
	case "cpus":
		err = read(&s.CPUs, raw, orUnlimited(processors))
	case "memory":
		err = read(&s.Memory, raw, orUnlimited(size))
	case "pids":
		err = read(&s.PIDs, raw, orUnlimited(count))
	case "stdout-cap":
		err = read(&s.StdoutCap, raw, size)
	case "stderr-cap":
		err = read(&s.StderrCap, raw, size)
	case "disk":
		err = read(&s.Disk, raw, size)
	case "inodes":
		err = read(&s.Inodes, raw, count)
	case "nofile":
		err = read(&s.NoFile, raw, count)
	default:
		return false, nil
	}
	return true, err
}

// scalar is a value as written: the text of a string, or of a plain number.
type scalar struct {
	text   string
	number bool
}

// read parses raw into s. A null asks nothing.
func read[T any](s *Setting[T], raw json.RawMessage, parse func(scalar) (T, error)) error {
	v := scalar{text: string(raw)}
	switch {
	case isNull(raw):
		return nil
	case raw[0] == '"':
		if err := json.Unmarshal(raw, &v.text); err != nil {
			return err
		}
	case raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9':
		v.number = true
	default:
		return fmt.Errorf("want a string or a number, got %s", kindOf(raw))
	}
	value, err := parse(v)
	if err == nil {
		*s = Set(value)
	}
	return err
}

func orUnlimited[T ~int64 | ~float64](parse func(scalar) (T, error)) func(scalar) (sandbox.Limit[T], error) {
	return func(v scalar) (sandbox.Limit[T], error) {
		if v.text == "unlimited" {
			return sandbox.Unlimited[T](), nil
		}
		value, err := parse(v)
		return sandbox.At(value), err
	}
}

func imageName(v scalar) (string, error) {
	if v.number || strings.TrimSpace(v.text) == "" {
		return "", errors.New("want the name of an image")
	}
	return v.text, nil
}

// duration reads a Go duration, or a plain number of seconds.
func duration(v scalar) (time.Duration, error) {
	if !v.number {
		d, err := time.ParseDuration(v.text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a time such as 30s or 2m", v.text)
		}
		return d, nil
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if ns := f * float64(time.Second); err == nil && math.Abs(ns) < math.MaxInt64 {
		return time.Duration(ns), nil
	}
	return 0, fmt.Errorf("%s seconds is out of range", v.text)
}

func processors(v scalar) (float64, error) {
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("%q is not a number of processors such as 0.5", v.text)
	}
	return f, nil
}

// size reads a size with its unit, or a plain number of bytes.
func size(v scalar) (sandbox.Bytes, error) {
	if v.number {
		n, err := count(v)
		return sandbox.Bytes(n), err
	}
	return sandbox.ParseBytes(v.text)
}

func count(v scalar) (int64, error) {
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", v.text)
	}
	return n, nil
}
