# shellcheck shell=bash
# The root file systems of the container images: the programs, the libraries that they are linked with, and nothing else.
# Needs say.sh.

# The files that the loader maps for a program; none for a static one.
libraries() {
    local lines
    # ldd refuses what is static.
    lines=$(LC_ALL=C ldd "$1" 2>/dev/null) || return 0
    if [[ $lines == *'not found'* ]]; then die "$1 needs a library that is not here: $lines"; fi
    sed -n 's/^\t\(.* => \)\{0,1\}\(\/[^ ]*\) (0x.*/\2/p' <<<"$lines"
}

# fill ROOT PROGRAM…: the programs, and what they need.
fill() {
    local root=$1 program library
    shift
    install -d "$root/usr/local/bin" "$root/etc"
    install -d -m 1777 "$root/tmp"
    printf 'root:x:0:0:root:/:/nonexistent\n' >"$root/etc/passwd"
    printf 'root:x:0:\ncofferdam:x:990:\n' >"$root/etc/group"
    for program in "$@"; do
        install -m 0755 -t "$root/usr/local/bin" "$program"
        while read -r library; do
            install -D -m 0755 "$(readlink -f "$library")" "$root$library"
        done < <(libraries "$program")
    done
}

# fill_images DIRECTORY PROGRAMS: both roots. The daemon's has the static busybox of the runs' default image, too.
fill_images() {
    fill "$1/cofferd" "$2/cofferd" "$2/coffer"
    install -D -m 0755 "$BUSYBOX" "$1/cofferd$BUSYBOX"
    fill "$1/client" "$2/coffer" ${COFFERDAM_GRPCURL:+"$COFFERDAM_GRPCURL"}
}

# pack_images ROOTS CONTEXT: the context of a build with deploy/Dockerfile.
pack_images() {
    local name
    install -m 0644 "$REPOSITORY/deploy/Dockerfile" "$2/Dockerfile"
    for name in cofferd client; do
        pack "$1/$name" "$2/$name.tar"
    done
}

# pack ROOT FILE: sorted, and without this machine's users and times.
pack() {
    tar --create --file "$2" --directory "$1" --sort=name --format=gnu --mtime="@${SOURCE_DATE_EPOCH:-0}" \
        --owner=0 --group=0 --numeric-owner .
}
