#!/usr/bin/env bash
# Fetches what the pages of the web console with a terminal need and cofferd carries: xterm.js, in one version, checked by its
# SHA-256, into target/console-assets. Nothing is fetched that is there. A build without it shows recordings as text.
#
#   deploy/console-assets.sh
#
# npm fetches it, from the registry that it is configured for. Where there is no npm, this says so and succeeds.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/console-assets.log}
# shellcheck source=/dev/null
source "$REPOSITORY/deploy/lib/say.sh"

PACKAGE=@xterm/xterm@5.5.0
ARCHIVE=bd954fa721872170188cc5d7e83e88db3c83c9a18a4e8d24c2783d26491f59d2
FILES=(
    "1f991ac3b4b283ebf96e60ae23a00a52765dd3a2e46fa6fdda9f1aab032f7495 xterm.js"
    "ba8e6985669488981ccf40c0cefe3aba80722cb6c92de7ad628b0bd717faf2b6 xterm.css"
    "b569f629d00f2626a8100df2a1798210535621e42164dfd426a6fe5aac7b0ccd LICENSE"
)
PLACE=target/console-assets

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

case ${1:-} in
-h | --help) usage && exit 0 ;;
?*) usage >&2 && exit 2 ;;
esac

# are_good DIRECTORY: the files in it are those that were chosen.
are_good() { printf '%s\n' "${FILES[@]}" | sed 's/ /  /' | (cd "$1" 2>/dev/null && sha256sum --quiet --strict --check - >/dev/null 2>&1); }

# Also where the tests have their Node.js (deploy/lib/tools.sh).
npm_program() { PATH="$PATH:$REPOSITORY/target/tools/conformance/bin" command -v npm; }

# A subshell, which removes what it leaves when it ends.
fetch() (
    local scratch archive path
    path=$PATH:$REPOSITORY/target/tools/conformance/bin
    scratch=$(mktemp -d "$REPOSITORY/target/console-assets.XXXXXX")
    # shellcheck disable=SC2064 # the directory of now
    trap "rm -rf '$scratch'" EXIT
    (cd "$scratch" && PATH=$path timeout 300 npm pack --silent --ignore-scripts "$PACKAGE" >/dev/null) || return 1
    archive=$(find "$scratch" -name '*.tgz')
    echo "$ARCHIVE  $archive" | sha256sum --quiet --strict --check - || return 1
    mkdir "$scratch/files"
    tar -xzf "$archive" -C "$scratch/files" --no-same-owner --transform 's,.*/,,' \
        package/lib/xterm.js package/css/xterm.css package/LICENSE || return 1
    are_good "$scratch/files" || return 1
    rm -rf "$PLACE"
    mv "$scratch/files" "$PLACE"
    chmod 0755 "$PLACE"
    # Cargo does not watch a directory that was not there.
    touch crates/web-console/build.rs
)

if are_good "$PLACE"; then exit 0; fi
if ! npm_program >/dev/null; then
    note "– xterm.js: not fetched, for there is no npm; the console shows recordings as text, and has no live terminal"
    exit 0
fi
step "Fetching xterm.js for the console" again fetch
