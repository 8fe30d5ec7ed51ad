#!/bin/sh
# Ends a daemon of a test that is gone: killed by its time limit, say, which no code of its own outlives.
#
#   setsid sh leash.sh PID DIRECTORY
#
# Standard input is a pipe whose other end the test alone has. A line says that the test has ended its daemon itself. The end
# of the pipe without one says that the test is gone: the daemon is stopped, then its containers, mounts and directory go.
pid=$1 directory=$2
read -r _ && exit 0

# By now the number may be another process's.
lives() { tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF " $directory/"; }
signal() { lives && kill "-$1" "$pid"; }

signal TERM
for _ in $(seq 300); do
    lives || break
    sleep 0.1
done
signal KILL
while lives; do sleep 0.1; done

if [ -f "$directory/state/instance" ]; then
    label=io.cofferdam.instance=$(cat "$directory/state/instance")
    docker ps --all --quiet --filter "label=$label" | xargs -r docker rm --force
fi
awk -v beneath="$directory/" 'index($5, beneath) == 1 { print $5 }' /proc/self/mountinfo | sort -r | xargs -r -n 1 umount -l
rm -rf --one-file-system "$directory"
