#!/bin/sh
# After a removal: systemd forgets the unit. A purge deletes the state and the group, and names what stays.
set -e

if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
fi

case "$1" in
remove)
    if command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper mask cofferd.service >/dev/null || true
    fi
    echo "Records, the audit log and managed workspaces stay in /var/lib/cofferdam until the package is purged." >&2
    ;;
purge)
    if command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper purge cofferd.service >/dev/null || true
        deb-systemd-helper unmask cofferd.service >/dev/null || true
    fi
    if grep -q ' /var/lib/cofferdam/' /proc/self/mountinfo; then
        echo "/var/lib/cofferdam stays: something is mounted in it. Unmount it and delete the directory." >&2
    else
        rm -rf --one-file-system /var/lib/cofferdam 2>/dev/null ||
            echo "/var/lib/cofferdam stays, for it is a file system of its own." >&2
    fi
    rm -rf /run/cofferdam
    rmdir --ignore-fail-on-non-empty /etc/cofferdam /srv/workspaces 2>/dev/null || true
    if getent group cofferdam >/dev/null; then groupdel cofferdam || true; fi
    for left in /etc/cofferdam /srv/workspaces; do
        if [ -d "$left" ]; then echo "$left stays: it has files of yours." >&2; fi
    done
    if command -v docker >/dev/null && docker image ls -q cofferdam/default 2>/dev/null | grep -q .; then
        echo "The engine keeps the default image. 'docker image rm \$(docker image ls -q cofferdam/default)' removes it." >&2
    fi
    ;;
esac
