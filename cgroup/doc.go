// Package cgroup gives each run a control group of its own: it creates the
// group, limits it, kills everything in it, proves that nothing is left, reads
// what was used and removes it. It works on cgroup v2, on v1 and on hybrid
// hosts, where the controllers are on v1 and cgroup2 is mounted beside them.
//
//	host, err := cgroup.Open(cgroup.Config{})
//	group, err := host.Create("run-7f", resources)
//	fd, ok := group.FD()   // start the process with CLONE_INTO_CGROUP where ok
//	err = group.Add(pid)   // and put it into the hierarchies it wasn't born into
//	err = group.Kill(ctx)  // nil: the group is empty, whoever was in it
//	usage := group.Usage()
//	err = group.Remove(ctx)
//	err = host.Close()
//
// Everything is made below the directory "checkcell" of our own position (or of
// Config.Parent) in each hierarchy:
//
//	checkcell/s-<pid>-<random>/<name of the group>
//
// The middle directory belongs to one Host. The Host holds an flock on it, so
// that [Host.Sweep] can tell the groups of a crashed process, whose lock is gone,
// from those of a living one, across PID namespaces too. Nothing outside these
// directories is changed but, on a pure v2 host, cgroup.subtree_control of the
// directory above "checkcell" and our own place in it; see [Open].
//
// Kernel rules are from Documentation/admin-guide/cgroup-v2.rst and
// Documentation/admin-guide/cgroup-v1/ of the kernel's sources.
//
// Of github.com/containerd/cgroups/v3 only the reader of /proc/PID/cgroup is
// used. Its mode detection knows one mount point, its creation adopts what is
// there, its proof of emptiness takes an error for empty, its statistics turn a
// missing file into 0, and ToResources drops a quota that comes without a
// period; all of which a limit that fails closed can't be built on.
package cgroup
