#!/usr/bin/env bash
# Makes sure that the base of images/dev is in the Docker Engine, and prints its name. Order: use the image that is
# there, else pull it, else make it from Debian's packages with mmdebstrap and import it under the same name. The last
# way needs a package mirror and no registry. Can be run again at any time: with the image there is nothing to do.
#
#   images/debian-base.sh [NAME]
#
#   NAME   debian:SUITE-slim (debian:bookworm-slim)
#
# COFFERDAM_DEBIAN_MIRROR=URL   the mirror to use in place of mmdebstrap's own
# COFFERDAM_NO_PULL=1           ask no registry
#
# An image that was made here has the label io.cofferdam.made-by=mmdebstrap; one that was pulled has not.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for part in say packages engine; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

LOG_FILE=${LOG_FILE:-$REPOSITORY/target/debian-base.log}
PULL_PATIENCE=60 # seconds; a registry that cannot be reached often does not say so

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

NAME=debian:bookworm-slim
case ${1:-} in
'') ;;
-h | --help) usage && exit 0 ;;
debian:*-slim) NAME=$1 ;;
*) usage >&2 && exit 2 ;;
esac
SUITE=${NAME#debian:}
SUITE=${SUITE%-slim}
[[ $SUITE =~ ^[a-z]+$ ]] || die "$SUITE is not the name of a Debian release."

have_image() { engine image inspect --format '{{.Id}}' "$NAME" >/dev/null 2>&1; }

# Nothing of an interrupted pull has the image's name.
pull() { ENGINE_TIMEOUT=$PULL_PATIENCE engine pull --quiet "$NAME"; }

# The essential packages and apt, without manuals, as the official slim images are. The same packages give the same
# layer: no file is newer than the epoch.
bootstrap() {
    local exclude options=()
    for exclude in doc man info locale lintian linda groff; do options+=(--dpkgopt="path-exclude=/usr/share/$exclude/*"); done
    as_root env TMPDIR="$WORKSHOP" SOURCE_DATE_EPOCH=946684800 mmdebstrap --mode=root --variant=minbase "${options[@]}" \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --aptopt='Apt::Install-Recommends "false"' \
        "$SUITE" "$WORKSHOP/root.tar" ${COFFERDAM_DEBIAN_MIRROR:+"$COFFERDAM_DEBIAN_MIRROR"}
}

# From a whole file: the engine would import what a broken pipe has delivered so far.
import() {
    engine import --change 'CMD ["bash"]' --change 'LABEL io.cofferdam.made-by=mmdebstrap' "$WORKSHOP/root.tar" "$NAME"
}

remove_workshop() { as_root rm -rf --one-file-system "$WORKSHOP"; }

engine_answers || { need_root "talk to the Docker Engine" && engine_answers; } ||
    die "No Docker Engine answers. Start one, or run deploy/engine.sh."

# One at a time: the second finds what the first has made.
mkdir -p "$REPOSITORY/target"
exec 9>"$REPOSITORY/target/debian-base.lock"
flock 9

if have_image; then
    printf '%s\n' "$NAME"
    exit 0
fi
if [[ -z ${COFFERDAM_NO_PULL:-} ]]; then
    note "asking the registry for $NAME"
    if pull >/dev/null 2>&1; then
        printf '%s\n' "$NAME"
        exit 0
    fi
    note "no registry gives it; making it from Debian's packages"
fi

command -v mmdebstrap >/dev/null || install_packages "A base image without a registry" mmdebstrap
need_root "unpack Debian's packages"
WORKSHOP=$(mktemp -d /var/tmp/cofferdam-debian.XXXXXX)
trap remove_workshop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 0755 "$WORKSHOP" # apt fetches as a user of its own
step "Making a Debian $SUITE (takes a minute)" again bootstrap || die "The Debian tree could not be made; is there a package mirror? COFFERDAM_DEBIAN_MIRROR names one."
step "Importing it as $NAME" import
printf '%s\n' "$NAME"
