#!/usr/bin/env bash
# systemd-checks.sh runs inside the virtual machine of systemd.sh, as root, and
# says of each check whether it held. ada has a systemd of her own; bob has none.
set -uo pipefail

nonce=$(cat /etc/nonce)
group=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service
out=/run/out
checks=0

# as_ada COMMAND ARG… runs in a session of ada's, as a login makes one.
as_ada() { systemd-run --quiet --collect --wait --pipe --uid=ada --working-directory=/home/ada -p PAMName=login -- "$@"; }

# as_user UID COMMAND ARG… runs as a user, but in no session, as cron does; that
# is quicker than a login.
as_user() {
	local uid=$1
	shift
	env -u XDG_RUNTIME_DIR setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$@"
}

# exits CODE COMMAND ARG… keeps what a command prints in $out.
exits() {
	local want=$1 got=0
	shift
	"$@" >"$out" 2>&1 || got=$?
	[ "$got" = "$want" ] || echo "exit code $got, want $want: $*"
	[ "$got" = "$want" ]
}

# says PATTERN… wants each, an extended regular expression, in $out.
says() {
	local pattern ok=0
	for pattern; do
		grep -Eq -- "$pattern" "$out" || { echo "nothing matches: $pattern" && ok=1; }
	done
	return "$ok"
}

silent_on() { ! grep -Eq -- "$1" "$out" || { echo "something matches: $1" && return 1; }; }

# gone wants that no scope and no group of checkcell's is left, within 30 seconds.
gone() {
	local i
	for i in {1..300}; do
		[ -z "$(find /sys/fs/cgroup -name 'checkcell*')" ] && ! pgrep -x sleep >/dev/null && return 0
		read -rt 0.1 <> <(:) || true
	done
	find /sys/fs/cgroup -name 'checkcell*'
	return 1
}

# check NAME FUNCTION runs one check.
check() {
	local began=$EPOCHREALTIME said
	checks=$((checks + 1))
	if said=$($2 2>&1); then
		echo "vm $nonce: held $1 ($(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }") s)"
		return
	fi
	echo "vm $nonce: failed $1"
	echo "$said"
	sed 's/^/    | /' "$out"
}

nobody_to_ask() {
	exits 125 as_user 1001 checkcell run -- true &&
		says "can't enforce cgroup, memory, pids, cpu" 'none runs for user 1001 \(no socket in /run/user/1001\)' 'loginctl enable-linger 1001' \
			'systemd-run --user --scope -p Delegate=yes' '--cgroup-parent'
}

usual_delegation() { exits 0 cat "$group/cgroup.controllers" && says '^memory pids$'; }

doctor_without_cpu() {
	exits 4 as_ada checkcell doctor &&
		says '^cgroup +in force +cgroup2, in checkcell-[0-9]+-[0-9a-f]+\.scope of your systemd' '^memory +in force' '^pids +in force' \
			"^cpu +missing .*doesn't have it, only \"memory pids\".*Delegate=cpu cpuset io memory pids" &&
		silent_on '^(memory|pids|network|seccomp) +missing'
}

refused_by_name() {
	echo '{"rung":1,"check":"test 1 = 1"}' >/home/ada/one.jsonl
	exits 4 as_ada checkcell grade one.jsonl &&
		says "can't enforce cpu: " 'to fix it: .*Delegate=cpu cpuset io memory pids' 'allow-missing=cpu$' '^nothing was run$' &&
		exits 125 as_ada checkcell run -- true && says "can't enforce cpu: "
}

without_cpu_by_leave() {
	exits 0 as_user 1000 checkcell run --json --allow-missing=cpu -- true && says '"missing":\["cpu"\]' '"memory":"cgroup2 memory.max=' '"pids":"cgroup2 pids.max=' &&
		exits 0 as_user 1000 checkcell run --json --cpus unlimited -- true && says '"missing":\[\]'
}

# What was a delegated scope already is left for one that is no better, and is gone.
from_scope_to_scope() {
	exits 4 as_ada systemd-run --quiet --user --scope -p Delegate=yes -- checkcell doctor &&
		says 'in checkcell-[0-9a-f-]+\.scope of your systemd' '^memory +in force' '^cpu +missing .*Delegate=cpu' &&
		exits 0 as_ada systemctl --user list-units --all --no-legend '*.scope' && silent_on 'checkcell|run-'
}

# The remedy is taken as it is printed.
remedy() {
	local command
	exits 4 as_ada checkcell doctor
	command=$(sed -n 's/^cpu .*as root: \(mkdir .*service\) (that ends .*/\1/p' "$out")
	exits 0 sh -c "$command" && exits 0 cat "$group/cgroup.controllers" && says 'cpu' 'memory' 'pids'
}

doctor_in_full() {
	exits 0 as_ada checkcell doctor && says '^cgroup +in force +cgroup2, in checkcell-[0-9a-f-]+\.scope of your systemd' '^cpu +in force' && silent_on ' missing '
}

run_in_full() {
	exits 0 as_ada checkcell run -- echo hello && says '^hello$' &&
		exits 0 as_ada checkcell run --json -- true && says '"success":true' '"cgroup":"v2"' '"missing":\[\]' '"cpu":"cgroup2 cpu.max=' &&
		exits 7 as_ada checkcell run -- sh -c 'exit 7'
}

grade_in_full() {
	cat >/home/ada/claims.jsonl <<'CLAIMS'
{"id":"sum","title":"sum","rung":4,"check":"echo \"sum=$((6 * 7))\"","expect":"sum=42"}
{"id":"wrong","title":"wrong","rung":4,"check":"echo \"sum=$((6 * 7))\"","expect":"sum=43"}
{"id":"late","title":"late","rung":4,"check":"sleep 4711; echo \"sum=$((6 * 7))\"","expect":"sum=42","timeout":"1s"}
{"id":"hog","title":"hog","rung":4,"check":"tail /dev/zero; echo \"sum=$((6 * 7))\"","expect":"sum=42","memory":"48MiB"}
CLAIMS
	exits 1 as_ada checkcell grade claims.jsonl &&
		says '^verified +sum ' '^contradicted +wrong ' '^unrunnable +late ' '^unrunnable +hog ' '^4 claims: 1 verified, 1 contradicted, 0 silent-check, 2 unrunnable'
}

deadline() {
	exits 124 as_user 1000 checkcell run --timeout 1s -- sh -c 'sleep 4711 & setsid sleep 4712 & sleep 4713' && says 'timed_out after 1\.' && gone
}

limits() {
	exits 137 as_user 1000 checkcell run --memory 48MiB -- tail /dev/zero && says 'limit_exceeded memory' &&
		as_user 1000 checkcell run --pids 8 --timeout 5s -- bash -c 'for i in {1..20}; do sleep 4711 & done; exit 3' >"$out" 2>&1
	says 'refused for the process limit' && gone
}

nothing_left() {
	gone && exits 0 as_ada systemctl --user list-units --all --no-legend 'checkcell-*' && silent_on .
}

# The supervisor is killed: the cell ends, and the scope with it.
killed() {
	as_user 1000 checkcell run --timeout 60s -- sleep 4711 >"$out" 2>&1 &
	local i unit=$! pid=
	for i in {1..300}; do
		pgrep -x sleep >/dev/null && pid=$(pgrep -u ada -f '^(.*/)?checkcell run') && break
		read -rt 0.1 <> <(:) || true
	done
	[ -n "$pid" ] && kill -9 "$pid" && { wait "$unit" || true; } && gone
}

several() {
	local i running=() ok=0
	for i in 1 2 3; do
		as_user 1000 checkcell run --json -- sh -c "echo run $i" >"$out.$i" 2>&1 &
		running+=($!)
	done
	for i in "${running[@]}"; do
		wait "$i" || ok=1
	done
	cat "$out".[123] >"$out"
	[ "$ok" = 0 ] && [ "$(grep -c '"success":true' "$out")" = 3 ]
}

from_cron() {
	exits 0 as_user 1000 checkcell doctor && says 'in checkcell-[0-9a-f-]+\.scope of your systemd'
}

# A shell in a delegated scope fills it: the group holds more than checkcell.
beside_a_shell() {
	exits 0 as_ada systemd-run --quiet --user --scope -p Delegate=yes -- bash -c 'checkcell doctor; exit $?' && says 'in checkcell-[0-9a-f-]+\.scope of your systemd'
}

# Alone in a delegated scope nothing is asked for.
alone() {
	exits 0 as_ada systemd-run --quiet --user --scope -p Delegate=yes -- checkcell doctor && says '^cgroup +in force +cgroup2 ' && silent_on 'of your systemd'
}

without_bus() {
	as_ada systemctl --user stop dbus.socket dbus.service
	rm -f /run/user/1000/bus
	exits 0 as_user 1000 checkcell doctor && says 'in checkcell-[0-9a-f-]+\.scope of your systemd'
}

# As in a container that was given the host's sockets.
other_pid_namespace() {
	exits 125 in_pid_namespace checkcell run -- true && says 'outside of this container' '--cgroup-parent'
}
in_pid_namespace() { unshare --pid --fork --mount-proc setpriv --reuid 1000 --regid 1000 --clear-groups -- "$@"; }

as_root() { exits 0 checkcell run --json --allow-missing=memory,pids,cpu -- true && says '"success":true' && silent_on 'systemd'; }

check 'nobody to ask: refused, with every way out' nobody_to_ask
loginctl enable-linger ada
systemctl start user@1000.service
check "the user's systemd has memory and pids only" usual_delegation
check 'doctor names the scope, and cpu with its remedy' doctor_without_cpu
check 'grade and run refuse cpu by name' refused_by_name
check 'run without cpu, by leave' without_cpu_by_leave
check 'a delegated scope without cpu is left, and is gone' from_scope_to_scope
check 'the remedy, as printed, gives cpu' remedy
check 'doctor: every control in force' doctor_in_full
check 'run: every control in force' run_in_full
check 'grade: four claims, four ends' grade_in_full
check 'deadline kills the tree' deadline
check 'memory and process limits hold' limits
check 'no scope is left' nothing_left
check 'kill -9 of the supervisor ends cell and scope' killed
check 'three at once' several
check 'outside of any session' from_cron
check 'in a scope beside a shell' beside_a_shell
check 'alone in a delegated scope: no other is asked for' alone
check 'root asks nobody' as_root
check 'a systemd outside of the container is not asked' other_pid_namespace
check 'without a bus, by the private socket' without_bus
echo "vm $nonce: done $checks"
stty -F /dev/ttyS0 sane # waits until the line has sent all
systemctl --force --force poweroff
