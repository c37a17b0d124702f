#!/usr/bin/env bash
# run.sh TESTBINARY... runs static test binaries on a pure cgroup v2 host: a
# virtual machine without KVM that boots Debian's kernel with an initramfs of
# busybox, bash and the binaries. It prints what they print, and exits 0 only if
# the machine finished and every binary passed.
#
#   CGO_ENABLED=0 go test -c -o /tmp/cgroup.test ./cgroup && e2e/vm/run.sh /tmp/cgroup.test
#
# VM_KERNEL   a kernel to boot; otherwise Debian's is downloaded, not installed
# VM_CACHE    where that is kept (default: ~/.cache/checkcell-vm)
# VM_TIMEOUT  seconds for everything (default: 900)
# VM_REQUIRE  what the tests must find there, as CHECKCELL_REQUIRE
# VM_ARGS     arguments of the binaries (default: -test.v -test.timeout=10m)
set -euo pipefail

die() {
	echo "run.sh: $*" >&2
	exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/checkcell-vm}
require=${VM_REQUIRE:-root,cgroup-writable,cgroup-v2,cgroup-pure-v2,cgroup-kill,memory-cgroup,pids-cgroup,bash}

[ $# -gt 0 ] || die "no test binary named"
for tool in qemu-system-x86_64 busybox bash cpio dpkg; do
	command -v "$tool" >/dev/null || die "$tool is missing: apt-get install qemu-system-x86 busybox-static bash cpio"
done

work=$(mktemp -d /tmp/checkcell-vm.XXXXXX)
trap 'rm -rf "$work"' EXIT

# kernel prints the path of a kernel, which it fetches once.
kernel() {
	if [ -n "${VM_KERNEL:-}" ]; then
		echo "$VM_KERNEL"
		return
	fi
	local found package
	found=$(find "$cache" -name 'vmlinuz-*' 2>/dev/null | sort -V | tail -n 1)
	if [ -z "$found" ]; then
		mkdir -p "$cache"
		package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
		[ -n "$package" ] || die "apt knows no linux-image-cloud-amd64: apt-get update, or name a kernel in VM_KERNEL"
		(cd "$work" && apt-get download "$package" >&2 && dpkg -x "$package"_*.deb kernel)
		cp "$work"/kernel/boot/vmlinuz-* "$cache"/
		found=$(find "$cache" -name 'vmlinuz-*' | sort -V | tail -n 1)
	fi
	echo "$found"
}

# with_libraries copies a program and the libraries that it is linked to.
with_libraries() {
	local file
	local path
	path=$(type -P "$1") || return 0
	for file in $(ldd "$path" 2>/dev/null | grep -o '/[^ ]*'); do
		[ -e "$root$file" ] && continue
		mkdir -p "$root$(dirname "$file")"
		cp -L "$file" "$root$file"
	done
	mkdir -p "$root/bin"
	[ -e "$root/bin/$1" ] || cp -L "$path" "$root/bin/$1"
}

root=$work/root
mkdir -p "$root"/{proc,sys,dev,tmp,etc,tests}
with_libraries busybox
for program in bash ldd setsid grep sed awk ps $(dpkg -L coreutils | sed -n 's,.*/bin/,,p'); do
	with_libraries "$program"
done
# The locale of a cell: without it bash complains on every start.
mkdir -p "$root/usr/lib/locale"
cp -r /usr/lib/locale/C.utf8 "$root/usr/lib/locale/"
install -m 755 "$here/init" "$root/init"
echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
number=0
for binary; do
	[ -x "$binary" ] || die "$binary is not a program"
	number=$((number + 1))
	cp "$binary" "$root/tests/$(printf %02d $number)-$(basename "$binary")"
done
# The nonce keeps what a test prints from passing for what the machine says.
nonce=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
printf 'nonce=%s\nrequire=%s\narguments="%s"\n' "$nonce" "$require" "${VM_ARGS:--test.v -test.timeout=10m}" >"$root/etc/vm"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$work/initramfs"

image=$(kernel)
[ -r "$image" ] || die "kernel $image can't be read"
status=0
timeout "${VM_TIMEOUT:-900}" qemu-system-x86_64 \
	-accel tcg -cpu max -smp 2 -m 2048 -nodefaults -no-reboot -display none -serial stdio \
	-kernel "$image" -initrd "$work/initramfs" \
	-append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all" </dev/null |
	tr -d '\r' | tee "$work/log" || status=$?
[ "$status" = 0 ] || die "the virtual machine ended with status $status"

if ! grep -qx "vm $nonce: done $number" "$work/log"; then
	echo "run.sh: the virtual machine did not finish" >&2
	exit 1
fi
passed=$(grep -c "^vm $nonce: passed " "$work/log" || true)
echo "run.sh: $passed of $number test binaries passed"
[ "$passed" = "$number" ]
