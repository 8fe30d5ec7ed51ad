#!/usr/bin/env bash
# Builds an image of images/ for the tests, unless it is in the engine, and prints its name. The name holds a digest of
# what it is built from, so that a changed Dockerfile is another image.
#
#   tests/images.sh dev|rust|programs|services
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/images.log}
mkdir -p "$REPOSITORY/target"
for part in say packages engine; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

# ensure NAME BASE: sets IMAGE. The builder uses the host's network, for a mirror may be reached from there alone.
ensure() {
    local context=${3-$REPOSITORY/images/$1} base=$2 digest
    digest=$({ engine image inspect --format '{{.Id}}' "$base" && cat "$REPOSITORY/images/$1"/*; } | sha256sum)
    IMAGE=cofferdam-test/$1:${digest:0:16}
    if engine image inspect "$IMAGE" >/dev/null 2>&1; then return 0; fi
    step "Building images/$1 (once, takes minutes)" again engine build --force-rm --network host \
        --build-arg http_proxy --build-arg https_proxy --build-arg BASE="$base" --tag "$IMAGE" "$context" ||
        die "images/$1 could not be built; can Debian's packages be fetched? http_proxy names a proxy, and COFFERDAM_DEBIAN_MIRROR a mirror for a base that is yet to be made."
}

# The programs, from Debian and from npm's registry. Its client runs here, where it is set up, and no script of a package does.
programs() {
    local context=$REPOSITORY/target/programs
    mkdir -p "$context"
    cp "$REPOSITORY"/images/programs/* "$context"
    step "Fetching the packages of images/programs" again npm install --prefix "$context" --ignore-scripts --no-audit --no-fund ||
        die "npm's registry did not give the packages of images/programs; the lines above say why."
    ensure programs "$IMAGE" "$context"
}

case ${1:-} in
dev | rust | programs | services) ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac

# One at a time: tests/run.sh builds what a test may wait for.
exec 8>"$REPOSITORY/target/images.lock"
flock 8

BASE=$("$REPOSITORY/images/debian-base.sh")
ensure dev "$BASE"
case $1 in
rust | services) ensure "$1" "$IMAGE" ;;
programs) programs ;;
esac
printf '%s\n' "$IMAGE"
