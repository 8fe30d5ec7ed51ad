#!/usr/bin/env bash
# Makes the two images of deploy/compose.yaml from programs that are built already: cofferdam/cofferd, and
# cofferdam/client with the command line. No registry and no base image: each holds the programs, the libraries that
# they are linked with, and nothing else; cofferd's has the static busybox of runs' default image, too, which is
# installed here if it is missing. deploy/Dockerfile has their settings. The same programs give the same files.
#
#   deploy/compose-images.sh [--tag TAG] [DIRECTORY]
#
#   DIRECTORY   where cofferd and coffer are (target/release)
#   --tag TAG   of both images (dev)
#
# With COFFERDAM_GRPCURL=FILE the client image has that grpcurl, too.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for part in say packages engine busybox roots; do
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

fill_images "$ROOTS" "$PROGRAMS"
install -d "$ROOTS/context"
pack_images "$ROOTS" "$ROOTS/context"
for name in cofferd client; do
    # Its stage alone: without BuildKit the engine also builds the stages before a target, and leaves them without a name.
    # Without the cache, which goes by names and times.
    awk -v wanted="$name" '/^FROM / { stage = $NF } stage == wanted' "$ROOTS/context/Dockerfile" |
        engine build --quiet --no-cache --force-rm --network none --file - --tag "cofferdam/$name:$TAG" "$ROOTS/context" >/dev/null
    say "cofferdam/$name:$TAG"
done
