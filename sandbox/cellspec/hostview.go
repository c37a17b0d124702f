package cellspec

import "github.com/opencontainers/runtime-spec/specs-go"

// hostView lists what of the host the host view shows, read-only: its programs
// and the few files of /etc that programs need. /root, /home, /var, /run, the
// secrets of /etc and every socket stay outside. A source that the host does
// not have is left out by the backend ("x-checkcell.optional").
func hostView() []specs.Mount {
	var mounts []specs.Mount
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		mounts = append(mounts, bind(dir))
	}
	for _, name := range []string{
		"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", // found by the loader and by update-alternatives links
		"ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs",
		"localtime", "mime.types", "protocols", "services", "gai.conf", "host.conf",
		"python3", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14",
		"perl", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "java-25-openjdk",
		"fonts", "magic", "terminfo", "inputrc", "emacs", "R", "octave.conf",
	} {
		mounts = append(mounts, bind("/etc/"+name))
	}
	return mounts
}

// OptionalOption marks a bind that is left out where the host lacks its source.
const OptionalOption = "x-checkcell.optional"

func bind(path string) specs.Mount {
	return specs.Mount{
		Destination: path, Type: "bind", Source: path,
		Options: []string{"rbind", "ro", "nosuid", "nodev", OptionalOption},
	}
}

// rootFiles are the files of /etc that are made for the cell instead of shown:
// the host's own would tell its users and names.
func rootFiles() map[string]string {
	return map[string]string{
		"/etc/passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" +
			"cell:x:1000:1000:cell:/work:/bin/bash\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"/etc/group":         "root:x:0:\ncell:x:1000:\nnogroup:x:65534:\n",
		"/etc/hosts":         "127.0.0.1 localhost cell\n::1 localhost\n",
		"/etc/hostname":      "cell\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"/etc/resolv.conf":   "",
	}
}

// maskedPaths and readonlyPaths are the entries of /proc that container
// engines hide or protect by default.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/proc/kallsyms",
		"/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/config.gz",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
