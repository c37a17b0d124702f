package native

import (
	"encoding/binary"
	"testing"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs the filter over one call, in the machine that the kernel's is
// modelled on.
func verdict(t *testing.T, filter []unix.SockFilter, machine uint32, number uint32, args ...uint64) uint32 {
	t.Helper()
	var program []bpf.Instruction
	for _, f := range filter {
		program = append(program, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64) // struct seccomp_data; the VM reads its words big-endian
	binary.BigEndian.PutUint32(data[offsetNumber:], number)
	binary.BigEndian.PutUint32(data[offsetArch:], machine)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offsetArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offsetArgs+8*i+wordBytes:], uint32(a>>32))
	}
	r, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(r)
}

func cellFilter(t *testing.T) []unix.SockFilter {
	t.Helper()
	s, err := cellspec.Build(sandbox.Spec{ID: "t", Check: "true", Limits: sandbox.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	filter, err := compileFilter(s.Linux.Seccomp)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

func TestFilter(t *testing.T) {
	filter := cellFilter(t)
	machine, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	const allow = uint32(unix.SECCOMP_RET_ALLOW)
	fails := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	tests := []struct {
		name string
		args []uint64
		want uint32
	}{
		{"read", nil, allow},
		{"execve", nil, allow},
		{"mount", nil, fails(unix.EPERM)},
		{"unshare", nil, fails(unix.EPERM)},
		{"setns", nil, fails(unix.EPERM)},
		{"keyctl", nil, fails(unix.EPERM)},
		{"bpf", nil, fails(unix.EPERM)},
		{"perf_event_open", nil, fails(unix.EPERM)},
		{"userfaultfd", nil, fails(unix.EPERM)},
		{"io_uring_setup", nil, fails(unix.EPERM)},
		{"open_by_handle_at", nil, fails(unix.EPERM)},
		{"kexec_load", nil, fails(unix.EPERM)},
		{"init_module", nil, fails(unix.EPERM)},
		{"clock_settime", nil, fails(unix.EPERM)},
		{"process_vm_readv", nil, fails(unix.EPERM)},
		{"pivot_root", nil, fails(unix.EPERM)},
		{"clone3", nil, fails(unix.ENOSYS)},
		{"clone", []uint64{uint64(unix.SIGCHLD)}, allow},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, allow},
		{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, fails(unix.EPERM)},
		{"clone", []uint64{unix.CLONE_NEWNET}, fails(unix.EPERM)},
		{"clone", []uint64{unix.CLONE_NEWNS | unix.CLONE_NEWPID}, fails(unix.EPERM)},
		{"socket", []uint64{unix.AF_UNIX}, allow},
		{"socket", []uint64{unix.AF_INET}, allow},
		{"socket", []uint64{unix.AF_INET6}, allow},
		{"socket", []uint64{unix.AF_NETLINK}, fails(unix.EAFNOSUPPORT)},
		{"socket", []uint64{unix.AF_PACKET}, fails(unix.EAFNOSUPPORT)},
		{"socket", []uint64{unix.AF_VSOCK}, fails(unix.EAFNOSUPPORT)},
		{"socket", []uint64{1<<32 | unix.AF_INET}, fails(unix.EAFNOSUPPORT)},
		{"ptrace", []uint64{unix.PTRACE_TRACEME}, allow},
		{"ptrace", []uint64{unix.PTRACE_ATTACH}, fails(unix.EPERM)},
		{"ptrace", []uint64{unix.PTRACE_SEIZE}, fails(unix.EPERM)},
		{"personality", []uint64{0xffffffff}, allow},
		{"personality", []uint64{0x0400000}, fails(unix.EPERM)}, // READ_IMPLIES_EXEC
	}
	for _, tt := range tests {
		number, ok := machine.SyscallNames[tt.name]
		if !ok {
			t.Fatalf("there is no call %s on %s", tt.name, machine.Name)
		}
		if got := verdict(t, filter, uint32(machine.ID), uint32(number), tt.args...); got != tt.want {
			t.Errorf("%s(%#x) = %#x, want %#x", tt.name, tt.args, got, tt.want)
		}
		if got := verdict(t, filter, uint32(machine.ID)+1, uint32(number), tt.args...); got != fails(unix.ENOSYS) {
			t.Errorf("%s of another architecture = %#x, want ENOSYS", tt.name, got)
		}
		if got := verdict(t, filter, uint32(machine.ID), uint32(number)|1<<30, tt.args...); got != fails(unix.ENOSYS) {
			t.Errorf("%s of the x32 ABI = %#x, want ENOSYS", tt.name, got)
		}
	}
}

// An argument that is compared must not be taken for the number of a call by
// the rules that follow: whatever it is, a call that is denied stays denied.
func TestFilterDoesNotMixUpArguments(t *testing.T) {
	filter := cellFilter(t)
	machine, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	for value := range uint64(600) {
		if value == unix.AF_UNIX || value == unix.AF_INET || value == unix.AF_INET6 {
			continue
		}
		got := verdict(t, filter, uint32(machine.ID), uint32(machine.SyscallNames["socket"]), value)
		if want := unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT); got != want {
			t.Errorf("socket(%d) = %#x, want %#x", value, got, want)
		}
		flags := unix.CLONE_NEWUSER | value
		if got := verdict(t, filter, uint32(machine.ID), uint32(machine.SyscallNames["clone"]), flags); got != unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM) {
			t.Errorf("clone(%#x) = %#x, want EPERM", flags, got)
		}
	}
}

func TestFilterRefusesWhatItDoesNotKnow(t *testing.T) {
	errno := uint(1)
	base := func() specs.LinuxSeccomp {
		return specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &errno,
			Syscalls: []specs.LinuxSyscall{{Names: []string{"socket"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{Op: specs.OpEqualTo}}}}}
	}
	for name, change := range map[string]func(*specs.LinuxSeccomp){
		"default action": func(s *specs.LinuxSeccomp) { s.DefaultAction = specs.ActTrace },
		"default errno":  func(s *specs.LinuxSeccomp) { s.DefaultErrnoRet = nil },
		"action":         func(s *specs.LinuxSeccomp) { s.Syscalls[0].Action = specs.ActNotify },
		"errno":          func(s *specs.LinuxSeccomp) { s.Syscalls[0].Action = specs.ActErrno },
		"comparison":     func(s *specs.LinuxSeccomp) { s.Syscalls[0].Args[0].Op = specs.OpGreaterThan },
		"argument":       func(s *specs.LinuxSeccomp) { s.Syscalls[0].Args[0].Index = 6 },
	} {
		s := base()
		if _, err := compileFilter(&s); err != nil {
			t.Fatalf("compileFilter(base): %v", err)
		}
		change(&s)
		if f, err := compileFilter(&s); err == nil {
			t.Errorf("%s: compileFilter gives %d instructions, want an error", name, len(f))
		}
	}
}
