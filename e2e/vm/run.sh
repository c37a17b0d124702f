#!/usr/bin/env bash
# run.sh [PART…] runs tests on a pure cgroup v2 host: a virtual machine without
# KVM that boots Debian's kernel with a root in memory. That holds bash,
# coreutils, util-linux, python3, runc, crun, a checkcell and the tests, all built
# here. It prints what they print, and exits 0 only if every part was run and held.
# The parts are those of the function part, or all of them by that word; without one
# named, those are run that each change should pass.
#
# VM_CACHE    where the kernel is kept (default: ~/.cache/checkcell-vm)
# VM_TIMEOUT  seconds for everything (default: 900)
# VM_SLOW     by how much the times of the hostile corpus are stretched (default: 6);
#             from 7 on fork-bomb fails, since bash gives up a fork after 15 seconds
set -euo pipefail
cd "$(dirname "$0")/../.."
all=(groups cells cells-user runtimes faults hostile hostile-user)
usual=(groups cells cells-user hostile hostile-user)

# part prints the package of a part, who runs its tests, and the tests that must
# pass; where none is named, all are run, and those for other hosts are skipped.
part() {
	case $1 in
	groups) echo cgroup root ;;
	cells) echo sandbox/native root ;;
	cells-user) echo sandbox/native user TestContract TestWorkspaceOfOurs ;;
	runtimes) echo sandbox/oci root TestContractRunc TestContractCrun ;;
	faults) echo e2e root TestClockJumps TestStarvedOfFiles TestStarvedOfProcesses TestStarvedByUlimit TestStarvedOfMemory TestRuntimeDeathIsNoExitCode ;;
	hostile) echo e2e root TestHostile TestHostileTogether ;;
	hostile-user) echo e2e root TestHostileByUser TestRefusedToUser TestUserInOwnGroup ;; # it is checkcell that the user starts
	*) die "no part is called $1; there are ${all[*]}" ;;
	esac
}

# What the machine must have: a test that lacks one of these fails there.
require=root,cgroup-writable,cgroup-v2,cgroup-pure-v2,cgroup-kill,memory-cgroup,pids-cgroup,userns,unpriv-userns,bash,python3,runc,crun,clock-settable
# Where a cell looks for programs; those are what the machine gets.
cell_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

die() {
	echo "run.sh: $*" >&2
	exit 2
}

# kernel prints a directory with a kernel and the modules that tests need. It is
# downloaded once, by apt-get, which knows what Debian signed, and checked from
# then on against what it was.
kernel() {
	local found package new
	found=$(find "$cache" -mindepth 2 -maxdepth 2 -name SHA256SUMS -printf '%h\n' 2>/dev/null | sort -V | tail -n 1)
	if [ -z "$found" ]; then
		package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
		[ -n "$package" ] || die "apt knows no linux-image-cloud-amd64: apt-get update"
		(cd "$work" && apt-get download -qq "$package" >&2 && dpkg -x "$package"_*.deb package)
		mkdir -p "$cache"
		new=$(mktemp -d "$cache/.new.XXXXXX")
		mv "$work"/package/boot/vmlinuz-* "$new/vmlinuz"
		find "$work/package/lib/modules" -name overlay.ko -exec mv {} "$new" \;
		(cd "$new" && sha256sum vmlinuz overlay.ko >SHA256SUMS) || die "$package is not made as was expected"
		found=$cache/$package
		mv -T "$new" "$found"
		rm -rf "$work/package"
	fi
	(cd "$found" && sha256sum --check --quiet SHA256SUMS >&2) || die "the kernel in $found is damaged: remove it, and it is downloaded again"
	echo "$found"
}

# programs copies what a minimal Debian has, and a little more for the tests.
programs() {
	local name names paths=() stdlib
	names=(bash busybox ldd grep sed awk ps python3 runc crun)
	mapfile -t -O "${#names[@]}" names < <(dpkg -L coreutils util-linux bsdutils mount | sed -n 's,.*/s\?bin/,,p')
	for name in "${names[@]}"; do
		paths+=("$(PATH=$cell_path type -P "$name" || true)")
	done
	stdlib=$(PATH=$cell_path python3 -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
	mkdir -p "$root$stdlib"
	tar -C "$stdlib" -c --exclude='config-*' --exclude='*-packages' --exclude=./test --exclude=./idlelib \
		--exclude=./lib2to3 --exclude=./pydoc_data --exclude=./ensurepip --exclude=./distutils . | tar -C "$root$stdlib" -x
	paths+=("$stdlib"/lib-dynload/*.so)
	# With the libraries that they are linked to; busybox is to none.
	{
		printf '%s\n' "${paths[@]}"
		ldd "${paths[@]}" 2>/dev/null | grep -o '/[^ :]*' || true
	} | sed -n 's,^/usr/\(bin\|sbin\|lib\|lib64\)/,/\1/,; /./p' | sort -u | xargs -d '\n' cp -L --parents -t "$root"
	ln -sf bash "$root/usr/bin/sh"
	# The locale of a cell: without it bash complains on every start.
	mkdir -p "$root/usr/lib/locale"
	cp -r /usr/lib/locale/C.utf8 "$root/usr/lib/locale/"
}

# files makes what else a host has.
files() {
	local dir
	mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{proc,sys,dev,tmp,etc,mnt,root,home,run,var/tmp}
	for dir in bin sbin lib lib64; do
		ln -s "usr/$dir" "$root/$dir"
	done
	printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'user:x:1000:1000:user:/home:/bin/bash' >"$root/etc/passwd"
	printf '%s\n' 'root:x:0:' 'user:x:1000:' >"$root/etc/group"
	chmod 1777 "$root/tmp" "$root/var/tmp"
	install -m 755 e2e/vm/init "$root/init"
}

# tests builds checkcell and the tests of the packages. A test finds the root of
# its module by go.mod, and its testdata in its own directory.
tests() {
	local package
	mkdir -p "$root/module/bin"
	echo 'module github.com/checkcell/checkcell' >"$root/module/go.mod"
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$root/module/bin/" ./cmd/checkcell
	for package; do
		mkdir -p "$root/module/$package"
		CGO_ENABLED=0 go test -c -ldflags='-s -w' -o "$root/module/$package/" "./$package"
		if [ -d "$package/testdata" ]; then
			cp -r "$package/testdata" "$root/module/$package/"
		fi
	done
}

# summary PART [TEST…] says how a part ended, by the log, and fails unless all of
# it was run and held, with the tests that are named.
summary() {
	local text name passed failed skipped held='' ok=0
	text=$(sed -n "/^vm $nonce: began $1\$/,/^vm $nonce: ended $1 /p" "$work/log")
	passed=$(grep -c '^ *--- PASS: ' <<<"$text") || ok=1
	failed=$(grep -c '^ *--- FAIL: ' <<<"$text") && ok=1
	skipped=$(grep -c '^ *--- SKIP: ' <<<"$text") || true
	grep -q "^vm $nonce: ended $1 with 0 " <<<"$text" || ok=1
	for name in "${@:2}"; do
		[ "$skipped" = 0 ] && grep -q "^--- PASS: $name (" <<<"$text" || ok=1
	done
	held=$(sed -n 's/.*: \([0-9]* of [0-9]* cases held\)$/, \1/p' <<<"$text")
	echo "test-vm: $1: $passed of $((passed + failed)) tests passed, $skipped skipped$held; $(sed -n "s/^vm $nonce: ended $1 //p" <<<"$text")"
	return "$ok"
}

[ $# -gt 0 ] || set -- "${usual[@]}"
[ "$1" != all ] || set -- "${all[@]}"
for tool in qemu-system-x86_64 busybox bash cpio dpkg go; do
	type -P "$tool" >/dev/null || die "$tool is missing: .ci/deps vm installs it"
done
timeout=${VM_TIMEOUT:-900} slow=${VM_SLOW:-6}
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/checkcell-vm}
work=$(mktemp -d /tmp/test-vm.XXXXXX) # tests look for what checkcell-* left there
trap 'rm -rf "$work"' EXIT
root=$work/root
nonce=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')

packages=() parts=()
# Many cases wait more than they compute, so more are under way than processors.
for name; do
	spec=$(part "$name")
	read -ra words <<<"$spec"
	packages+=("${words[0]}")
	run=.
	if [ ${#words[@]} -gt 2 ]; then
		run="^($(IFS='|' && echo "${words[*]:2}"))\$"
	fi
	parts+=("$name ${words[*]:0:2} -test.v -test.parallel=4 -test.timeout=${timeout}s -test.run=$run")
done
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)

image=$(kernel)
files
programs
tests "${packages[@]}"
modules=(/module/overlay.ko)
cp "$image/overlay.ko" "$root/module/"
declare -p nonce require slow modules parts >"$root/etc/vm"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs"
rm -rf "$root"

# What makes an emulated processor slow is left out: code at another address in
# each process, which is translated anew each time (a program starts five times as
# fast without); defences against others on the same processor; a fifth level of
# page tables; and string instructions that go byte by byte, by which a kernel that
# knows of them clears every page. The clock that it takes otherwise is a device,
# and each look at it a journey.
status=0
mkfifo "$work/console"
tee "$work/log" <"$work/console" & # ends with the machine
reader=$!
timeout "$timeout" qemu-system-x86_64 \
	-accel tcg,thread=multi -cpu max,la57=off,erms=off,fsrm=off -smp 2 -m 4096 -nodefaults -no-reboot -display none -serial stdio \
	-kernel "$image/vmlinuz" -initrd "$work/initramfs" \
	-append "console=ttyS0 loglevel=2 panic=-1 cgroup_no_v1=all norandmaps mitigations=off tsc=reliable clocksource=tsc" \
	</dev/null >"$work/console" &
machine=$!
trap 'kill "$machine" 2>/dev/null; rm -rf "$work"' EXIT
wait "$machine" || status=$?
trap 'rm -rf "$work"' EXIT
wait "$reader"
if [ "$status" != 0 ]; then
	echo "run.sh: the virtual machine ended with status $status; 124 is the end of its ${timeout}s" >&2
fi
for name; do
	spec=$(part "$name")
	read -ra words <<<"$spec"
	summary "$name" "${words[@]:2}" || status=1
done
[ "$status" = 0 ]
