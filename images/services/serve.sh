#!/bin/sh
# Starts a database as the images of databases do: as root it gives the data to the database's user and becomes that user,
# and as any other user it starts at once. POSTGRES_PASSWORD is the password of the user postgres.
set -eu

# become USER DIRECTORY ARGUMENTS…: start again as this user, who owns the directory, unless this is another user already.
become() {
    user=$1 directory=$2
    shift 2
    [ "$(id -u)" = 0 ] || return 0
    mkdir -p "$directory"
    chown -R "$user:$user" "$directory"
    exec setpriv --reuid "$user" --regid "$user" --init-groups "$0" "$@"
}

case ${1-} in
postgres)
    become postgres /var/lib/postgresql/main "$@"
    umask 077
    data=/var/lib/postgresql/main
    bin=$(echo /usr/lib/postgresql/*/bin)
    if [ ! -s "$data/PG_VERSION" ]; then
        mkdir -p "$data"
        printf '%s' "${POSTGRES_PASSWORD:?is not set}" >/tmp/password
        "$bin/initdb" --pgdata "$data" --username postgres --encoding UTF8 --auth-local trust --auth-host scram-sha-256 \
            --pwfile /tmp/password >/dev/null
        rm /tmp/password
        echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    fi
    unset POSTGRES_PASSWORD
    exec "$bin/postgres" -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp -c fsync=off
    ;;
redis)
    become redis /var/lib/redis "$@"
    exec redis-server --port 6379 --protected-mode no --save '' --dir /tmp
    ;;
*)
    echo "serve: postgres or redis" >&2
    exit 2
    ;;
esac
