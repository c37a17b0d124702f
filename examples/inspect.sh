#!/usr/bin/env bash
# inspect.sh looks at the cell that it runs in, from inside, with nothing but
# bash and /proc:
#
#   checkcell run --check examples/inspect.sh
#
# It prints a line a fact, and exits with 1 if one is not as it should be. What
# only the host can compare, the namespaces and the host's user, it prints as is.

amiss=0

# fact NAME WANTED FOUND prints a line.
fact() {
	if [[ $3 == "$2" ]]; then
		printf 'ok     %-22s %s\n' "$1" "${3:-none}"
	else
		printf 'AMISS  %-22s %s, want %s\n' "$1" "${3:-none}" "${2:-none}"
		amiss=$((amiss + 1))
	fi
}

# Privileges: proc_pid_status(5).
while IFS=$':\t' read -r key value; do
	case $key in
	CapInh | CapPrm | CapEff | CapBnd | CapAmb) fact "$key" 0000000000000000 "$value" ;;
	NoNewPrivs) fact "$key" 1 "$value" ;;
	Seccomp) fact "$key" 2 "$value" ;;
	Groups) fact "$key" '' "${value// /}" ;;
	esac
done </proc/self/status

# The user: one, who is not the host's root: user_namespaces(7).
for map in uid_map gid_map; do
	lines=0
	while read -r inside outside count; do
		lines=$((lines + 1))
		fact "$map inside" 1000 "$inside"
		fact "$map count" 1 "$count"
		fact "$map not 0 outside" yes "$([[ $outside -gt 0 ]] && echo yes)"
	done <"/proc/self/$map"
	fact "$map lines" 1 "$lines"
done

# Mounts: proc_pid_mountinfo(5). What can be written to is the cell's own and
# holds no device; nothing gains privileges by a set-user-id file.
writable='' host='' suid='' place=''
while read -r _ _ _ root at options rest; do
	type=${rest#*- }
	type=${type%% *}
	[[ ,$options, == *,nosuid,* ]] || suid+=" $at"
	if [[ ,$options, == *,rw,* ]]; then
		case $type:$at in
		tmpfs:/work | overlay:/work | tmpfs:/tmp | tmpfs:/var/tmp | tmpfs:/dev/shm | proc:/proc) ;;
		*) writable+=" $at" ;;
		esac
		[[ ,$options, == *,nodev,* ]] || writable+=" devices:$at"
	fi
	case $type:$at in
	tmpfs:* | proc:* | overlay:/work) ;; # made for the cell
	devtmpfs:/dev/* | devtmpfs:/proc/*) # single devices: what is there, and what hides
		case $root in /null | /zero | /full | /random | /urandom | /tty) ;; *) host+=" $root" ;; esac
		;;
	*:/usr | *:/usr/* | *:/bin | *:/sbin | *:/lib | *:/lib[0-9x]* | *:/etc/*) ;; # programs, read-only
	*) place+=" $at" ;;
	esac
done </proc/self/mountinfo
fact 'writable, not ours' '' "$writable"
fact 'devices of the host' '' "$host"
fact 'mounts of the host' '' "$place"
fact 'mounts with set-uid' '' "$suid"

for at in / /usr /etc /dev /proc/sys/kernel; do
	fact "$at writable" '' "$([[ -w $at ]] && echo yes)"
done
for at in /sys /root /home /run /boot /mnt /media /srv /var/lib /etc/shadow; do
	fact "$at" '' "$([[ -e $at ]] && echo there)"
done

# Processes: the init and this one.
seen=''
for dir in /proc/[0-9]*; do
	seen+=" ${dir#/proc/}"
done
fact processes " 1 $$" "$seen"

# Open files: the three streams. The one that reads the directory is closed when
# it is looked for.
open=''
for file in "/proc/$$/fd/"*; do
	[[ -e $file || -L $file ]] && open+=" ${file##*/}"
done
fact 'open files' ' 0 1 2' "$open"

# Networks: no device but loopback, no route.
devices=''
while read -r name _; do
	[[ $name == *: ]] && devices+=" $name"
done </proc/net/dev
fact 'network devices' ' lo:' "$devices"
routes=-1 # the first line is a heading
while read -r _; do
	routes=$((routes + 1))
done </proc/net/route
fact routes 0 "$routes"

# Keys: none is shown. Groups: the cell sees itself at the top.
keys=''
while read -r key; do
	keys+=" $key"
done </proc/keys
fact keys '' "$keys"
groups=''
while IFS=: read -r _ _ path; do
	[[ $path == / ]] || groups+=" $path"
done </proc/self/cgroup
fact 'control groups above' '' "$groups"

for name in cgroup ipc mnt net pid user uts; do
	printf 'compare with the host: %s\n' "$(readlink "/proc/$$/ns/$name")"
done
echo "$amiss amiss"
((amiss == 0))
