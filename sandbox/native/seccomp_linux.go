package native

import (
	"fmt"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// struct seccomp_data of linux/seccomp.h, on the little-endian machines that
// cells run on.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
	wordBytes    = 4
)

// compileFilter turns the description's seccomp filter into the program that
// seccomp(2) takes. The first rule that matches decides. Calls of another
// architecture, of the x32 ABI, and calls newer than every one that is known by
// name get ENOSYS, so that programs fall back to what they did before there
// was such a call. A name that this architecture does not have is left out.
func compileFilter(s *specs.LinuxSeccomp) ([]unix.SockFilter, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	newest := 0
	for number := range machine.SyscallNumbers {
		newest = max(newest, number)
	}
	none := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	number := bpf.LoadAbsolute{Off: offsetNumber, Size: wordBytes}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: wordBytes},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(machine.ID), SkipTrue: 1},
		none,
		number,
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(newest), SkipTrue: 1}, // x32 calls have bit 30
		none,
	}
	for _, rule := range s.Syscalls {
		action, err := actionOf(rule.Action, rule.ErrnoRet)
		if err != nil {
			return nil, fmt.Errorf("seccomp filter: %v: %w", rule.Names, err)
		}
		var match []bpf.Instruction
		for i := len(rule.Args) - 1; i >= 0; i-- { // from the back, since each jumps over the rest
			if match, err = matchArg(rule.Args[i], match); err != nil {
				return nil, fmt.Errorf("seccomp filter: %v: %w", rule.Names, err)
			}
		}
		match = append(match, bpf.RetConstant{Val: action})
		for _, name := range rule.Names {
			if n, known := machine.SyscallNames[name]; known {
				program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(n), SkipFalse: uint8(len(match))})
				program = append(program, match...)
				if len(rule.Args) > 0 {
					program = append(program, number)
				}
			}
		}
	}
	last, err := actionOf(s.DefaultAction, s.DefaultErrnoRet)
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: last}))
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	filter := make([]unix.SockFilter, 0, len(raw))
	for _, i := range raw {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return filter, nil
}

// actionOf returns the filter's return value for an action.
func actionOf(a specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	switch {
	case a == specs.ActAllow:
		return unix.SECCOMP_RET_ALLOW, nil
	case a == specs.ActErrno && errno != nil:
		return unix.SECCOMP_RET_ERRNO | uint32(*errno)&unix.SECCOMP_RET_DATA, nil
	}
	return 0, fmt.Errorf("action %s is not one that this backend knows", a)
}

// matchArg puts the comparison of one argument before rest, which is jumped
// over where it fails, to the instruction behind it. An argument is compared
// in two halves, after a mask.
func matchArg(a specs.LinuxSeccompArg, rest []bpf.Instruction) ([]bpf.Instruction, error) {
	var mask, value uint64
	switch {
	case a.Index > 5:
		return nil, fmt.Errorf("argument %d: a call has six", a.Index)
	case a.Op == specs.OpEqualTo:
		mask, value = ^uint64(0), a.Value
	case a.Op == specs.OpMaskedEqual:
		mask, value = a.Value, a.ValueTwo
	default:
		return nil, fmt.Errorf("comparison %s is not one that this backend knows", a.Op)
	}
	// Behind rest stands the action's return, one more instruction.
	behind := len(rest) + 1
	low := uint32(offsetArgs + 8*a.Index)
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: low + wordBytes, Size: wordBytes},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(mask >> 32)},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(value >> 32), SkipTrue: uint8(behind + 3)},
		bpf.LoadAbsolute{Off: low, Size: wordBytes},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(mask)},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(value), SkipTrue: uint8(behind)},
	}, rest...), nil
}
