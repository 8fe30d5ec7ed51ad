#!/usr/bin/env bash
# Makes the two images of deploy/compose.yaml from programs that are built already: cofferdam/cofferd, and
# cofferdam/client with the command line. No registry and no base image: each holds the programs, the libraries that
# they are linked with, and nothing else; cofferd's has the static busybox of runs' default image, too, which is
# installed here if it is missing. The same programs give the same layers.
#
#   deploy/compose-images.sh [--tag TAG] [DIRECTORY]
#
#   DIRECTORY   where cofferd and coffer are (target/release)
#   --tag TAG   of both images (dev)
#
# With COFFERDAM_GRPCURL=FILE the client image has that grpcurl, too.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for part in say packages engine busybox; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

TAG=dev
PROGRAMS=${CARGO_TARGET_DIR:-$REPOSITORY/target}/release
while (($#)); do
    case $1 in
    --tag) TAG=${2:?--tag needs a value} && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) PROGRAMS=$1 ;;
    esac
    shift
done

for program in cofferd coffer; do
    [[ -x $PROGRAMS/$program ]] || die "There is no $program in $PROGRAMS: build it with 'cargo build --release', or name another directory."
done
ensure_busybox || die "No static busybox could be installed; the lines above say why."
engine_answers || need_root "load images into the Docker Engine"

ROOTS=$(mktemp -d)
trap 'rm -rf "$ROOTS"' EXIT

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

# load ROOT NAME change…
load() {
    local root=$1 name=$2 change changes=()
    shift 2
    for change in 'ENV PATH=/usr/local/bin' "$@"; do changes+=(--change "$change"); done
    tar --create --directory "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner . |
        engine import "${changes[@]}" - "$name:$TAG" >/dev/null
    say "$name:$TAG"
}

fill "$ROOTS/cofferd" "$PROGRAMS/cofferd" "$PROGRAMS/coffer"
install -D -m 0755 "$BUSYBOX" "$ROOTS/cofferd$BUSYBOX"
load "$ROOTS/cofferd" cofferdam/cofferd 'ENTRYPOINT ["cofferd", "--config", "/etc/cofferdam/cofferd.yaml"]'

fill "$ROOTS/client" "$PROGRAMS/coffer" ${COFFERDAM_GRPCURL:+"$COFFERDAM_GRPCURL"}
load "$ROOTS/client" cofferdam/client 'CMD ["coffer", "--help"]'
