#!/usr/bin/env bash
# Writes the licence texts of everything that cofferd, coffer and the workers are linked with, for a release:
# target/licenses/THIRD-PARTY-LICENSES.md, NOTICE and LICENSE. Fails on a licence that about.toml does not accept. Nothing is
# asked over the network when the crates are there (cargo fetch) and cargo-about is installed; else it is compiled first.
#
#   deploy/licenses.sh [DIRECTORY]
#
#   DIRECTORY   where they go (target/licenses)
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/licenses.log}
for part in say packages toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

case ${1:-} in
-h | --help) usage && exit 0 ;;
-*) usage >&2 && exit 2 ;;
esac
TO=${1:-target/licenses}

# C libraries that crates carry and compile in, with texts of their own: crate, file.
CARRIED=(
    'libgit2-sys libgit2/COPYING'
    'libmimalloc-sys c_src/mimalloc/v3/LICENSE'
    'libz-sys src/zlib/LICENSE'
)

# source_of CRATE: the directory of its source, nothing where the lock file does not have it.
source_of() {
    cargo metadata --locked --offline --format-version 1 | python3 -c '
import json, os, sys
for package in json.load(sys.stdin)["packages"]:
    if package["name"] == sys.argv[1]:
        print(os.path.dirname(package["manifest_path"]))
' "$1"
}

carried_texts() {
    local entry crate file source
    for entry in "${CARRIED[@]}"; do
        read -r crate file <<<"$entry"
        source=$(source_of "$crate")
        [[ -f $source/$file ]] || die "$crate no longer carries $file: mend the list in deploy/licenses.sh."
        printf '## %s, compiled in by %s\n\n```text\n' "$file" "$crate"
        cat "$source/$file"
        printf '```\n\n'
    done
}

# xterm.js, which the web console carries if it was fetched (deploy/console-assets.sh).
xterm_text() {
    [[ -f target/console-assets/LICENSE ]] || return 0
    printf '## xterm.js, carried by the web console\n\n```text\n'
    cat target/console-assets/LICENSE
    printf '```\n\n'
}

generate() {
    cargo about generate --offline --locked --fail --workspace -c about.toml deploy/licenses.hbs -o "$TO/THIRD-PARTY-LICENSES.md" &&
        { carried_texts && xterm_text; } >>"$TO/THIRD-PARTY-LICENSES.md"
}

export PATH="$TOOLS/bin:$PATH"
ensure_toolchain
cargo_tool about cargo-about --features cli || die "cargo-about could not be installed; the lines above say why."
step "The crates" cargo fetch --locked
mkdir -p "$TO"
step "Their licences" generate || die "Not all licences are accepted, or known; the lines above say which."
cp LICENSE NOTICE "$TO/"
printf '%s\n' "$TO"
