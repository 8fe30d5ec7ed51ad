#!/bin/bash
# In the virtual machine of tests/packages/machine.sh, as root: installs, upgrades, removes and purges the Debian package under a
# real systemd, with a run that lives on. /root/packages has two revisions of the package. Prints a line for each check, and
# as its last line how many passed and failed.
set -uo pipefail
export HOME=/root COFFERDAM_TOKEN=''

PASSED=0 FAILED=0
pass() { PASSED=$((PASSED + 1)) && printf 'ok      %s\n' "$1"; }
fail() { FAILED=$((FAILED + 1)) && printf 'FAILED  %s\n' "$1"; }

# check "What" command…
check() {
    local what=$1 said
    shift
    if said=$("$@" 2>&1 </dev/null); then pass "$what"; else
        fail "$what"
        { printf '%s\n' "$said" | tail -n 20 && journalctl --unit cofferd --output cat --no-pager --lines 12; } | cut -c 1-400 | sed 's/^/        /'
    fi
}

# within SECONDS command…: until it succeeds.
within() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < until)) || return 1
        sleep 1
    done
}

is() { [[ $1 == "$2" ]] || { printf 'expected %s, found %s\n' "$2" "$1" && return 1; }; }
has() { [[ $1 == *"$2"* ]] || { printf 'no %s in: %s\n' "$2" "$1" && return 1; }; }
answers() { coffer run list >/dev/null 2>&1; }
active() { systemctl is-active --quiet cofferd; }
inactive() { ! active; }
main_pid() { systemctl show --property MainPID --value cofferd; }
container() { docker ps --no-trunc --quiet --filter "name=cofferdam-$1"; }
no_container() { [[ -n $1 && -z $(docker ps --all --quiet --filter "name=cofferdam-$1") ]]; }
state_of() { [[ -n $2 ]] && coffer --output json run list --state "$1" | grep -q "$2"; }
files_of_state() { [[ -n $(find /var/lib/cofferdam -mindepth 1 -print -quit) ]]; }
absent() {
    local file
    for file in "$@"; do [[ ! -e $file ]] || { printf '%s is there\n' "$file" && return 1; }; done
}

# Times are ten times those of a host.
check "the engine answers" within 300 docker info
printf '%s\n' '127.0.0.1 inner.example.org' >>/etc/hosts
mkdir -p /srv/www && echo 'from the host' >/srv/www/index.html
busybox httpd -p 127.0.0.1:8080 -h /srv/www
before=$(find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/lib/docker -o -path /var/lib/containerd -o -path /var/log \) -prune -o -print | sort)

echo "==== install"
check "dpkg installs the package" dpkg --install /root/packages/cofferdam_*-1_*.deb
check "the service is active" within 120 active
check "the service is enabled" systemctl is-enabled --quiet cofferd
check "the daemon answers" within 300 answers
check "the socket belongs to the group" is "$(stat -c '%U:%G %a' /run/cofferdam/cofferd.sock)" 'root:cofferdam 660'
check "others cannot list the state" is "$(stat -c '%U:%G %a' /var/lib/cofferdam)" 'root:root 711'
# CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SETPCAP, NET_ADMIN, NET_RAW, SYS_PTRACE, SYS_ADMIN, SETFCAP.
check "its capabilities are bounded" has "$(grep CapBnd "/proc/$(main_pid)/status")" 00000000802831eb
check "no new privileges" has "$(grep NoNewPrivs "/proc/$(main_pid)/status")" 1
check "coffer has completions" test -s /usr/share/bash-completion/completions/coffer
check "cofferd says that it is in order" cofferd --check-config

echo "==== a run"
run=$(coffer run create --profile open --managed)
check "a run is made" test -n "$run"
check "a command runs in it" is "$(coffer call exec "$run" -- echo hello)" hello
check "a file is written" coffer call exec "$run" -- sh -c 'echo kept >file'

echo "==== a profile with a way out"
mkdir /etc/cofferdam/policy
cp /usr/share/cofferdam/policies/*.yaml /etc/cofferdam/policy/
cat >/etc/cofferdam/policy/out.yaml <<'END'
profiles:
  out:
    operations: { shell: allow }
    exec: { default: allow }
    egress:
      networks: ["127.0.0.0/8"]
      rules:
        - { host: inner.example.org, ports: [8080], scheme: http, decision: allow }
END
sed -i 's|^# policy_dir:.*|policy_dir: /etc/cofferdam/policy|; s|^# egress:$|egress: { hosts: { inner.example.org: 127.0.0.1 } }|' /etc/cofferdam/cofferd.yaml
check "the changed configuration is in order" cofferd --check-config
check "a restart takes the configuration" systemctl restart cofferd
check "the daemon answers again" within 300 answers
check "the run is ready after the restart" state_of ready "$run"
out=$(coffer run create --profile out --role director --managed)
check "a run with egress is made" test -n "$out"
check "it reaches the host's server" is "$(coffer call shell "$out" 'wget -q -O - http://inner.example.org:8080/')" 'from the host'
# shellcheck disable=SC2016 # expanded by the inner shell
check "it reaches no other name" bash -c '[ -n "$1" ] && ! coffer call shell "$1" "wget -q -T 5 -O - http://other.example.org:8080/"' - "$out"

echo "==== upgrade"
container=$(container "$run")
pid=$(main_pid)
# shellcheck disable=SC2016 # expanded by the inner shell
counter=$(coffer --output name process start "$run" -- sh -c 'i=0; while :; do i=$((i+1)); echo $i; sleep 1; done')
check "a process counts" test -n "$counter"
restarts=$(systemctl show --property NRestarts --value cofferd)
check "an upgrade is checked before" has "$(coffer upgrade --check)" 'all other runs and processes survive'
check "dpkg installs another revision" dpkg --force-confold --install /root/packages/cofferdam_*-2_*.deb
check "the daemon answers after the upgrade" within 300 answers
check "it is another daemon" test "$(main_pid)" != "$pid"
check "it took over: the service was not restarted" has "$(journalctl --unit cofferd --output cat --no-pager)" 'the earlier daemon stops and hands over'
check "systemd restarted nothing" is "$(systemctl show --property NRestarts --value cofferd)" "$restarts"
check "the service is active after the upgrade" active
check "its capabilities are bounded as before" has "$(grep CapBnd "/proc/$(main_pid)/status")" 00000000802831eb
check "the process counts on" has "$(coffer --output json process show "$run" "$counter")" RUNNING
check "the run is ready" state_of ready "$run"
check "its container runs" test -n "$container"
check "its container is the same" is "$(container "$run")" "$container"
check "its files are there" is "$(coffer call exec "$run" -- cat file)" kept
check "the run with egress still reaches the server" is "$(coffer call shell "$out" 'wget -q -O - http://inner.example.org:8080/')" 'from the host'
check "the audit log is intact" coffer audit verify

echo "==== removal"
echo mine >/srv/workspaces/mine
check "dpkg removes the package" dpkg --remove cofferdam
check "the service is not active" inactive
check "the runs' containers are gone" within 60 no_container "$run"
check "and the other's" within 60 no_container "$out"
check "nothing is mounted" bash -c '! grep -q " /var/lib/cofferdam/" /proc/self/mountinfo'
check "no process is left" bash -c '! pgrep -x "cofferd|coffer-.*"'
check "the state stays" files_of_state
check "the configuration stays" test -e /etc/cofferdam/cofferd.yaml

echo "==== installed again"
check "dpkg installs over what stayed" dpkg --force-confold --install /root/packages/cofferdam_*-2_*.deb
check "the daemon starts" within 300 answers
check "earlier runs are on record" state_of stopped "$run"

echo "==== purge"
said=$(dpkg --purge cofferdam 2>&1)
printf '%s\n' "$said" | sed 's/^/        /'
check "nothing of it is left" absent /var/lib/cofferdam /usr/bin/cofferd /usr/bin/coffer /usr/share/cofferdam /run/cofferdam \
    /etc/cofferdam/cofferd.yaml /etc/systemd/system/cofferd.service /etc/systemd/system/multi-user.target.wants/cofferd.service
check "the group is gone" bash -c '! getent group cofferdam'
check "systemd knows no such unit" bash -c '! systemctl cat cofferd.service'
check "workspaces with files are named and stay" has "$said$(cat /srv/workspaces/mine)" '/srv/workspaces stays'
check "the policy of the operator is named" has "$said" '/etc/cofferdam stays'
after=$(find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/lib/docker -o -path /var/lib/containerd -o -path /var/log \) -prune -o -print | sort)
new=$(comm -13 <(echo "$before") <(echo "$after") | grep -vE '^/(srv/workspaces|etc/cofferdam)|^/var/lib/dpkg/|^/(var/cache|var/lib/systemd|etc/(group|gshadow)-)' || true)
check "no other file is new" is "$new" ''
printf '%s passed, %s failed\n' "$PASSED" "$FAILED"
