# shellcheck shell=sh disable=SC2154 # the caller puts `key` and `port` into its environment
# The SSH server of one user of `coffer run ssh`. It accepts that user's key only, and ends with the run.
set -eu
if ! server=$(PATH=$PATH:/usr/local/sbin:/usr/sbin && command -v sshd) || ! command -v ssh-keygen >/dev/null; then
    echo "the image has no sshd and ssh-keygen: install OpenSSH's server in it" >&2
    exit 127
fi
if ! name=$(id -un); then
    echo "the image has no account for user $(id -u), which its sshd needs" >&2
    exit 127
fi

# Prints the line of sshd_config that gives sessions the variables of the run. sshd sets the ones that are left out here, and it
# cannot read a value with a line break.
variables() {
    printf SetEnv
    for variable in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
        case $variable in HOME | LOGNAME | MAIL | OLDPWD | PWD | SHELL | SHLVL | TERM | USER | _) continue ;; esac
        # A line of a value may look like a variable.
        eval "value=\${$variable-} is_set=\${$variable+yes}"
        case $is_set$value in '' | *'
'*) continue ;; esac
        printf ' "%s=%s"' "$variable" "$(printf '%s' "$value" | sed 's/["\\]/\\&/g')"
    done
    printf '\n'
}

# The server's own files are private. Sessions get the run's umask.
mask=$(umask)
umask 077
directory=$(mktemp -d)
printf '%s\n' "$key" >"$directory/keys"
ssh-keygen -q -t ed25519 -N '' -C run -f "$directory/host"
variables >"$directory/config"
# A server before 8.7 cannot read every value: sessions have none then.
"$server" -t -f "$directory/config" -h "$directory/host" 2>/dev/null || : >"$directory/config"
printf 'coffer-ssh %s %s\n' "$name" "$(cut -d ' ' -f 1,2 <"$directory/host.pub")"
umask "$mask"
exec "$server" -D -e -f "$directory/config" -p "$port" -h "$directory/host" -o ListenAddress=127.0.0.1 \
    -o AuthorizedKeysFile="$directory/keys" -o AuthenticationMethods=publickey -o UsePAM=no -o StrictModes=no \
    -o PidFile=none -o X11Forwarding=no -o AllowAgentForwarding=no -o Subsystem='sftp internal-sftp'
