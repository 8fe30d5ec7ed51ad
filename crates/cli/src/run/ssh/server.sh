# shellcheck shell=sh disable=SC2154 # the caller puts `key` and `port` into its environment
# The SSH server of one user of `coffer run ssh`. It accepts that user's key only, and ends with the run.
set -eu
umask 077
PATH=$PATH:/usr/local/sbin:/usr/sbin
if ! server=$(command -v sshd) || ! command -v ssh-keygen >/dev/null; then
    echo "the image has no sshd and ssh-keygen: install OpenSSH's server in it" >&2
    exit 127
fi
if ! name=$(id -un); then
    echo "the image has no account for user $(id -u), which its sshd needs" >&2
    exit 127
fi
directory=$(mktemp -d)
printf '%s\n' "$key" >"$directory/keys"
ssh-keygen -q -t ed25519 -N '' -C run -f "$directory/host"
printf 'coffer-ssh %s %s\n' "$name" "$(cut -d ' ' -f 1,2 <"$directory/host.pub")"
exec "$server" -D -e -f /dev/null -p "$port" -h "$directory/host" -o ListenAddress=127.0.0.1 \
    -o AuthorizedKeysFile="$directory/keys" -o AuthenticationMethods=publickey -o UsePAM=no -o StrictModes=no \
    -o PidFile=none -o X11Forwarding=no -o AllowAgentForwarding=no -o Subsystem='sftp internal-sftp'
