//go:build linux

package cellinit

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/checkcell/checkcell/sandbox"
	"github.com/checkcell/checkcell/sandbox/cellspec"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A Program is the set-up of a cell as data: a list of system calls that the
// cell's init makes, in order, after it was cloned into its namespaces. The
// init has one thread and no Go runtime, so it can neither allocate nor grow
// its stack; all that it needs is laid out here beforehand, in ordinary Go, in
// an arena that it maps at a fixed address.
type Program struct {
	arena
	Calls []Call   // in order
	Names []string // of each call, for an error: "mount proc on /proc"
	slots int      // how many results are kept
	err   error    // the first thing that could not be laid out

	streamed bool // what is laid out comes behind the orders
	guest    bool // it is for another kernel than this host's
}

// NewProgram returns a program without a call.
func NewProgram() Program {
	var p Program
	p.Add(make([]byte, initArgsBytes)) // the arena begins with them: see Finish
	return p
}

// Idle returns the arena of an init without a program, which ends at its first order.
func Idle() []byte { return make([]byte, initArgsBytes) }

// Call is one system call. Arguments are literal or come from a slot.
type Call struct {
	Nr   uintptr
	Arg  [6]uintptr
	From [6]Slot       // gives this argument; 0: it is literal
	Save Slot          // takes the result; 0: none
	Only bool          // the result must be Want
	Want uintptr       // the result that is needed, with Only
	Let  syscall.Errno // an error that is fine; 0: none
}

// arena is memory that is written here and read where it is mapped: addresses
// in it are those of the mapping.
type arena struct {
	mem []byte
}

// arenaStart is where an init maps its arena: an address that neither Go's heap,
// a program's image nor the kernel's own choice of mappings comes near, on
// 64-bit machines with 39 bits of address space and more.
const arenaStart = 0x20_0000_0000

// Add puts b into the arena, aligned for any type, and returns its address.
func (a *arena) Add(b []byte) uintptr {
	for len(a.mem)%8 != 0 {
		a.mem = append(a.mem, 0)
	}
	address := arenaStart + uintptr(len(a.mem))
	a.mem = append(a.mem, b...)
	return address
}

// Text puts s into the arena with a closing NUL.
func (a *arena) Text(s string) uintptr {
	address := a.Add([]byte(s))
	a.mem = append(a.mem, 0)
	return address
}

// Texts puts a list of texts into the arena, closed by a null pointer.
func (a *arena) Texts(list []string) uintptr {
	addresses := make([]uintptr, 0, len(list)+1)
	for _, s := range list {
		addresses = append(addresses, a.Text(s))
	}
	return a.Add(Raw(append(addresses, 0)...))
}

// Raw returns the memory of values, one after the other. T must hold no
// Go pointer.
func Raw[T any](values ...T) []byte {
	if len(values) == 0 {
		return nil
	}
	size := uintptr(len(values)) * unsafe.Sizeof(values[0])
	return slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), size))
}

// maxSlots bounds the results that a program can keep at one time.
const maxSlots = 64

// Slot is the place of a kept result, from 1 on; 0 is none.
type Slot uint8

// NewSlot takes a slot that is free.
func (p *Program) NewSlot() Slot {
	if p.slots == maxSlots {
		p.Fail(fmt.Errorf("the cell's set-up needs more than %d descriptors at once", maxSlots))
		return 1
	}
	p.slots++
	return Slot(p.slots)
}

// Fail notes the first thing that could not be laid out, for Finish.
func (p *Program) Fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// Call adds a call. Name says what it does, for an error.
func (p *Program) Call(name string, c Call) *Call {
	p.Calls = append(p.Calls, c)
	p.Names = append(p.Names, name)
	return &p.Calls[len(p.Calls)-1]
}

// AtCwd is AT_FDCWD as an argument.
const AtCwd = ^uintptr(0) - 99 // -100

// Mkdir makes a directory, unless there is one.
func (p *Program) Mkdir(path string, mode uint32) {
	p.Call("make directory "+path, Call{Nr: unix.SYS_MKDIRAT, Arg: [6]uintptr{AtCwd, p.Text(path), uintptr(mode)}, Let: unix.EEXIST})
}

// Symlink makes a symbolic link.
func (p *Program) Symlink(target, path string) {
	p.Call("link "+path, Call{Nr: unix.SYS_SYMLINKAT, Arg: [6]uintptr{p.Text(target), AtCwd, p.Text(path)}})
}

// Close closes the descriptor in s, which the next slot may be again.
func (p *Program) Close(s Slot) {
	p.Call("close", Call{Nr: unix.SYS_CLOSE, From: [6]Slot{s}})
	if int(s) == p.slots {
		p.slots--
	}
}

// openBeneath opens path for writing, made or emptied, so that no symbolic
// link of a workspace is followed on the way.
func (p *Program) openBeneath(path string, mode uint32) Slot {
	s := p.NewSlot()
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC | unix.O_CLOEXEC | unix.O_NOFOLLOW
	if p.guest { // gVisor has no openat2; see LayOut
		p.Call("make file "+path, Call{Nr: unix.SYS_OPENAT, Save: s, Arg: [6]uintptr{AtCwd, p.Text(path), flags, uintptr(mode)}})
		return s
	}
	how := unix.OpenHow{Flags: flags, Mode: uint64(mode), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	p.Call("make file "+path, Call{Nr: unix.SYS_OPENAT2, Save: s,
		Arg: [6]uintptr{AtCwd, p.Text(path), p.Add(Raw(how)), unsafe.Sizeof(how)}})
	return s
}

// fill copies the next n bytes of what is laid out to s.
func (p *Program) fill(s Slot, name string, n int64) {
	const most = 1 << 30 // below the kernel's own bound of one call, MAX_RW_COUNT
	nr, in := uintptr(unix.SYS_SENDFILE), uintptr(FdContent)
	if p.streamed {
		nr, in = callFill, FdControl
	}
	for ; n > 0; n -= most {
		part := uintptr(min(n, most))
		p.Call("fill file "+name, Call{Nr: nr, From: [6]Slot{s}, Only: true, Want: part,
			Arg: [6]uintptr{0, in, 0, part}})
	}
}

// Simple adds a call whose arguments are literal.
func (p *Program) Simple(name string, nr uintptr, args ...uintptr) *Call {
	c := Call{Nr: nr}
	copy(c.Arg[:], args)
	return p.Call(name, c)
}

// Finish lays out the two steps of spec and returns the arena, and the names of
// the calls for NewPeer. The error is the first one that Fail was given.
func (p *Program) Finish(spec *specs.Spec) (arena []byte, calls []string, err error) {
	a := initLayout{count: uintptr(len(p.Calls)), calls: p.Add(Raw(p.Calls...)), proc: p.Text("/proc")}
	proc := spec.Process
	env := p.Texts(proc.Env)
	paths := p.Texts(searchPaths(proc.Args[0], proc.Env))
	for i := range a.steps {
		args := proc.Args
		if i == int(sandbox.StepSyntax) && spec.Annotations[cellspec.SyntaxPassAnnotation] != "" {
			args = cellspec.SyntaxArgs(args)
		}
		a.steps[i] = stepLayout{
			paths: paths, argv: p.Texts(args), envv: env,
			stdout: uintptr(FdStreams + 2*i), stderr: uintptr(FdStreams + 2*i + 1),
		}
	}
	copy(p.mem, Raw(a))
	return p.mem, p.Names, p.err
}

// searchPaths lists where a program is looked for: as execvp(3) does.
func searchPaths(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var paths []string
	for _, dir := range strings.Split(variable(env, "PATH"), ":") {
		if dir != "" { // an empty part would mean the working directory
			paths = append(paths, path.Join(dir, name))
		}
	}
	return paths
}

// variable returns the value of an environment's variable; "" if there is none.
func variable(env []string, name string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// Refused begins the name of a call that must fail with what its Let says.
const Refused = "be refused "

// describeCall puts a failed call in words; names are those of the program. An
// errno of 0 is a short write.
func describeCall(names []string, index uint32, errno syscall.Errno) error {
	name := "call " + fmt.Sprint(index)
	switch {
	case int(index) < len(names):
		name = names[index]
	case index == callMap:
		name = "map the cell's program"
	case index == callSignals:
		name = "be told of ended children"
	}
	switch {
	case errno == 0 && strings.HasPrefix(name, Refused):
		return fmt.Errorf("%s: it was not refused", name)
	case errno == 0:
		errno = unix.ENOSPC
	case errno == unix.ELOOP:
		return fmt.Errorf("%s: a symbolic link of the workspace is in the way: %w", name, errno)
	}
	return fmt.Errorf("%s: %w", name, errno)
}
