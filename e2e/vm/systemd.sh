#!/usr/bin/env bash
# systemd.sh CHECKCELL shows that an ordinary user gets cells through systemd: a
# virtual machine without KVM boots Debian's kernel and systemd on pure cgroup v2,
# and the checks of systemd-checks.sh run in it. It exits 0 only if the machine
# finished and every check held.
#
#   make build && e2e/vm/systemd.sh bin/checkcell
#
# VM_KERNEL   a kernel to boot; otherwise Debian's is downloaded, not installed
# VM_CACHE    where that and Debian's packages are kept (default: ~/.cache/checkcell-vm)
# VM_TIMEOUT  seconds for everything (default: 1800)
set -euo pipefail

die() {
	echo "systemd.sh: $*" >&2
	exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/checkcell-vm}

[ $# -eq 1 ] || die "usage: systemd.sh CHECKCELL"
[ -x "$1" ] || die "$1 is not a program"
for tool in qemu-system-x86_64 busybox cpio dpkg apt-get tar; do
	command -v "$tool" >/dev/null || die "$tool is missing: apt-get install qemu-system-x86 busybox-static cpio"
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
	found=$(find "$cache" -maxdepth 1 -name 'vmlinuz-*' 2>/dev/null | sort -V | tail -n 1)
	if [ -z "$found" ]; then
		mkdir -p "$cache"
		package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
		[ -n "$package" ] || die "apt knows no linux-image-cloud-amd64: apt-get update, or name a kernel in VM_KERNEL"
		(cd "$work" && apt-get download "$package" >&2 && dpkg -x "$package"_*.deb kernel)
		cp "$work"/kernel/boot/vmlinuz-* "$cache"/
		found=$(find "$cache" -maxdepth 1 -name 'vmlinuz-*' | sort -V | tail -n 1)
	fi
	echo "$found"
}

# packages prints the directory of the packages that a system with systemd is
# made of, which it fetches once. Told that nothing is installed, apt finds them
# all; none of them gets installed here.
packages() {
	local debs=$cache/systemd-debs
	if [ ! -d "$debs" ]; then
		mkdir -p "$cache" "$work/debs/partial"
		: >"$work/status"
		apt-get install -y -qq --download-only --no-install-recommends \
			-o "Dir::State::status=$work/status" -o "Dir::Cache::archives=$work/debs" -o Debug::NoLocking=1 \
			systemd systemd-sysv libpam-systemd dbus dbus-user-session libc-bin dash bash coreutils grep sed mawk \
			procps util-linux mount login >&2 || die "can't fetch Debian's packages: apt-get update"
		rm -r "$work/debs/partial"
		mv "$work/debs" "$debs"
	fi
	echo "$debs"
}

# make_root unpacks the packages and does what their scripts would.
make_root() {
	local root=$1 debs deb dir
	debs=$(packages)
	mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{dev,proc,sys,run,tmp,root,var/tmp,var/log,home/ada,etc/pam.d,etc/systemd/system}
	for dir in bin sbin lib lib64; do
		ln -s "usr/$dir" "$root/$dir"
	done
	for deb in "$debs"/*.deb; do
		dpkg -x "$deb" "$root"
	done
	rm -rf "$root"/usr/share/{doc,man,info,locale,perl,perl5,lintian,bash-completion} "$root"/usr/lib/x86_64-linux-gnu/{perl*,gconv}
	[ -e "$root/bin/sh" ] || ln -s dash "$root/bin/sh"
	ln -sf mawk "$root/usr/bin/awk"
	printf '%s\n' 'root:x:0:0::/root:/bin/bash' 'messagebus:x:100:100::/nonexistent:/usr/sbin/nologin' \
		'ada:x:1000:1000::/home/ada:/bin/bash' 'bob:x:1001:1001::/:/bin/bash' 'nobody:x:65534:65534::/:/usr/sbin/nologin' >"$root/etc/passwd"
	printf '%s\n' 'root:x:0:' 'messagebus:x:100:' 'ada:x:1000:' 'bob:x:1001:' 'nogroup:x:65534:' >"$root/etc/group"
	for dir in auth account password session session-noninteractive; do
		printf '%s required pam_permit.so\n' "${dir%-noninteractive}" >"$root/etc/pam.d/common-$dir"
	done
	echo 'session optional pam_systemd.so' >>"$root/etc/pam.d/common-session"
	printf '%s\n' 'account required pam_permit.so' '@include common-session' >"$root/etc/pam.d/login"
	# What older versions hand the systemd of a user.
	sed -i 's/^Delegate=.*/Delegate=pids memory/' "$root/lib/systemd/system/user@.service"
	: >"$root/etc/machine-id"
	: >"$root/etc/fstab"
}

root=$work/root
make_root "$root"
install -m 755 "$1" "$root/usr/bin/checkcell"
install -m 755 "$here/systemd-checks.sh" "$root/usr/bin/systemd-checks"
cat >"$root/etc/systemd/system/checks.service" <<'UNIT'
[Unit]
Wants=dbus.socket systemd-logind.service
After=dbus.socket systemd-logind.service
[Service]
Type=oneshot
ExecStart=/usr/bin/systemd-checks
ExecStopPost=/usr/bin/systemctl --force --force poweroff
StandardInput=null
StandardOutput=file:/dev/ttyS0
StandardError=inherit
TimeoutStartSec=infinity
UNIT
# The nonce keeps what a check prints from passing for what the machine says.
nonce=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
echo "$nonce" >"$root/etc/nonce"
chmod 600 "$root/etc/nonce"

# The first root, the kernel's rootfs, is one that pivot_root(2) can't leave, as
# no host's is. So the system comes as an archive, unpacked to a tmpfs.
first=$work/first
mkdir -p "$first"/{bin,new}
cp -L "$(type -P busybox)" "$first/bin/busybox"
tar -C "$root" --owner=0 --group=0 -cf "$first/root.tar" .
cat >"$first/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t tmpfs -o size=75%,mode=755 root /new
/bin/busybox tar -C /new -xf /root.tar
/bin/busybox rm /root.tar
/bin/busybox chown 1000:1000 /new/home/ada
/bin/busybox chmod 1777 /new/tmp /new/var/tmp
exec /bin/busybox switch_root /new /lib/systemd/systemd
INIT
chmod 755 "$first/init"
(cd "$first" && find . | cpio --quiet -o -H newc) >"$work/initramfs"

image=$(kernel)
[ -r "$image" ] || die "kernel $image can't be read"
status=0
timeout "${VM_TIMEOUT:-1800}" qemu-system-x86_64 \
	-accel tcg -cpu max -smp 2 -m 2048 -nodefaults -no-reboot -display none -serial stdio \
	-kernel "$image" -initrd "$work/initramfs" \
	-append "console=ttyS0 quiet panic=-1 systemd.unit=checks.service systemd.show_status=0 systemd.log_level=warning" </dev/null |
	stdbuf -oL tr -d '\r' | tee "$work/log" || status=$?
[ "$status" = 0 ] || die "the virtual machine ended with status $status"

count=$(sed -n "s/^vm $nonce: done //p" "$work/log")
if [ -z "$count" ]; then
	echo "systemd.sh: the virtual machine did not finish" >&2
	exit 1
fi
held=$(grep -c "^vm $nonce: held " "$work/log" || true)
echo "systemd.sh: $held of $count checks held"
[ "$count" -gt 0 ] && [ "$held" = "$count" ]
