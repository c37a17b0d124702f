package cellspec

import (
	"runtime"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The numbers that the filter speaks of are the kernel's, and the same on all
// architectures that cells run on.
const (
	eperm       = 1
	enosys      = 38
	eafnosupp   = 97
	afUnix      = 1
	afInet      = 2
	afInet6     = 10
	ptraceAtt   = 16     // PTRACE_ATTACH
	ptraceSeize = 0x4206 // PTRACE_SEIZE

	// cloneNamespaces are all CLONE_NEW* flags that clone(2) takes.
	cloneNamespaces = 0x7e020000
)

// seccomp is the filter of a cell: what is not listed fails with EPERM, in the
// spirit of the container engines' default profiles, and narrower where a
// check has no business. clone3 gets ENOSYS, so that programs fall back to
// clone, whose flags a filter can look at.
func seccomp() *specs.LinuxSeccomp {
	errno := func(n uint) *uint { return &n }
	arg := func(index uint, op specs.LinuxSeccompOperator, value, two uint64) []specs.LinuxSeccompArg {
		return []specs.LinuxSeccompArg{{Index: index, Value: value, ValueTwo: two, Op: op}}
	}
	rules := []specs.LinuxSyscall{
		{Names: strings.Fields(allowedCalls), Action: specs.ActAllow},
		{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: errno(enosys)},
		{Names: []string{"clone"}, Action: specs.ActAllow, Args: arg(0, specs.OpMaskedEqual, cloneNamespaces, 0)},
	}
	for _, family := range []uint64{afUnix, afInet, afInet6} {
		rules = append(rules, specs.LinuxSyscall{Names: []string{"socket"}, Action: specs.ActAllow, Args: arg(0, specs.OpEqualTo, family, 0)})
	}
	rules = append(rules, specs.LinuxSyscall{Names: []string{"socket"}, Action: specs.ActErrno, ErrnoRet: errno(eafnosupp)})
	for _, request := range []uint64{ptraceAtt, ptraceSeize} {
		rules = append(rules, specs.LinuxSyscall{Names: []string{"ptrace"}, Action: specs.ActErrno, ErrnoRet: errno(eperm), Args: arg(0, specs.OpEqualTo, request, 0)})
	}
	rules = append(rules, specs.LinuxSyscall{Names: []string{"ptrace"}, Action: specs.ActAllow})
	for _, persona := range []uint64{0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff} { // Linux, 32-bit, 2.6 version numbers, no address randomization; ask
		rules = append(rules, specs.LinuxSyscall{Names: []string{"personality"}, Action: specs.ActAllow, Args: arg(0, specs.OpEqualTo, persona, 0)})
	}
	s := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: errno(eperm), Syscalls: rules}
	switch runtime.GOARCH {
	case "amd64":
		s.Architectures = []specs.Arch{specs.ArchX86_64}
	case "arm64":
		s.Architectures = []specs.Arch{specs.ArchAARCH64}
	}
	return s
}

// allowedCalls are the system calls that a check may make whatever their
// arguments. Left out on purpose: everything that mounts, makes or joins
// namespaces, changes the root or the clock, loads code into the kernel (modules,
// BPF, kexec), reaches into other processes, opens files by handle, uses
// keyrings, io_uring, userfaultfd, perf events or fanotify, swaps, reboots, or
// sets quotas.
const allowedCalls = `
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek open openat openat2 creat close close_range
stat fstat lstat newfstatat fstatat64 statx statfs fstatfs access faccessat faccessat2 readlink readlinkat
getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir rename renameat renameat2 link linkat unlink unlinkat symlink symlinkat
chmod fchmod fchmodat fchmodat2 chown fchown fchownat lchown umask truncate ftruncate fallocate mknod mknodat
utime utimes utimensat futimesat setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
removexattr lremovexattr fremovexattr setxattrat getxattrat listxattrat removexattrat
dup dup2 dup3 fcntl flock fsync fdatasync sync syncfs sync_file_range fadvise64 readahead sendfile splice tee vmsplice copy_file_range
pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2
eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
mmap munmap mprotect pkey_mprotect pkey_alloc pkey_free mremap madvise process_madvise mincore msync mlock mlock2 munlock mlockall munlockall
brk remap_file_pages memfd_create memfd_secret membarrier mseal map_shadow_stack cachestat
get_mempolicy
fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill pidfd_open pidfd_send_signal
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend rt_sigtimedwait sigaltstack pause restart_syscall
getpid getppid gettid getpgid getpgrp setpgid getsid setsid set_tid_address
getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups
capget capset prctl arch_prctl seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
getrlimit setrlimit prlimit64 getrusage times sysinfo uname getcpu getpriority setpriority ioprio_get ioprio_set
sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler
sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_getattr sched_setattr
futex futex_waitv futex_wake futex_wait futex_requeue get_robust_list set_robust_list rseq get_thread_area set_thread_area modify_ldt
clock_gettime clock_getres clock_nanosleep gettimeofday time nanosleep alarm getitimer setitimer
timer_create timer_settime timer_gettime timer_getoverrun timer_delete
getrandom ioctl
socketpair bind listen accept accept4 connect getsockname getpeername getsockopt setsockopt shutdown
sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
`
