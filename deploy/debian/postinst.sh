#!/bin/sh
# The system group of the socket, directories, and the service.
set -e

case "$1" in
configure | abort-upgrade | abort-deconfigure | abort-remove) ;;
*) exit 0 ;;
esac

getent group cofferdam >/dev/null || groupadd --system cofferdam
install -d -m 0755 /srv/workspaces
install -d -m 0700 /var/lib/cofferdam

deb-systemd-helper unmask cofferd.service >/dev/null || true
if deb-systemd-helper --quiet was-enabled cofferd.service; then
    deb-systemd-helper enable cofferd.service >/dev/null || true
else
    deb-systemd-helper update-state cofferd.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    # The new program takes over from the daemon that serves. 5: only a restart changes the program.
    action=start code=0
    if [ -n "$2" ]; then
        action=restart
        if systemctl is-active --quiet cofferd.service; then
            /usr/bin/cofferd --config /etc/cofferdam/cofferd.yaml --upgrade || code=$?
            if [ "$code" -ne 5 ] && systemctl is-active --quiet cofferd.service; then action=; fi
        fi
    fi
    if [ "$code" -ne 0 ] && [ -z "$action" ]; then
        echo "The earlier version of cofferd goes on. Correct the problem, then 'coffer upgrade' or 'systemctl restart cofferd'." >&2
    elif [ -n "$action" ] && ! deb-systemd-invoke "$action" cofferd.service >/dev/null; then
        echo "cofferd did not start. 'journalctl -u cofferd' says why; then 'systemctl start cofferd'." >&2
    fi
fi
