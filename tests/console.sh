#!/usr/bin/env bash
# Tests the web console in a browser: Debian's Chromium, driven by Playwright, against a daemon of its own, and axe-core on
# each page. Builds nothing: the programs are those of tests/run.sh. Screenshots are in target/console-shots.
#
#   tests/console.sh [PYTEST-ARGUMENTS…]
#
# COFFERDAM_TEST_COFFERD=PROGRAM    cofferd (target/debug/cofferd), with xterm.js (deploy/console-assets.sh)
# COFFERDAM_TEST_CHROMIUM=PROGRAM   the browser (chromium)
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/console.log}
for part in say packages engine toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done
BROWSER_PACKAGES=$TOOLS/browser
BROWSER_REQUIREMENTS=$REPOSITORY/tests/console/requirements.txt
AXE=$TOOLS/axe/axe.min.js
AXE_PACKAGE=axe-core@4.14.1
AXE_SHA256=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

case ${1:-} in
-h | --help) usage && exit 0 ;;
esac

is_axe() { echo "$AXE_SHA256  $1" | sha256sum --quiet --strict --check - >/dev/null 2>&1; }

fetch_axe() {
    local scratch status=0
    scratch=$(mktemp -d)
    {
        (cd "$scratch" && PATH=$PATH:$CONFORMANCE/bin npm pack --silent --ignore-scripts "$AXE_PACKAGE" >/dev/null) &&
            tar -xzf "$scratch"/*.tgz -C "$scratch" package/axe.min.js &&
            is_axe "$scratch/package/axe.min.js" &&
            install -D -m 0644 "$scratch/package/axe.min.js" "$AXE"
    } || status=1
    rm -rf "$scratch"
    return "$status"
}

export COFFERDAM_TEST_COFFERD=${COFFERDAM_TEST_COFFERD:-$REPOSITORY/target/debug/cofferd}
[[ -x $COFFERDAM_TEST_COFFERD ]] || die "There is no $COFFERDAM_TEST_COFFERD: tests/run.sh builds it."
((EUID == 0)) || die "The tests of the console start a cofferd and act as other users: run them as root."
ensure_engine || die "No Docker Engine could be started; the lines above say why."
if [[ -z ${COFFERDAM_TEST_CHROMIUM-} ]]; then
    distribution_tool chromium "The tests of the console" || die "Chromium could not be installed; the lines above say why."
    COFFERDAM_TEST_CHROMIUM=$(command -v chromium)
fi
ensure_packages "Playwright" "$BROWSER_PACKAGES" "$BROWSER_REQUIREMENTS" || exit 1
ensure_conformance || die "Node.js, which fetches axe-core, could not be installed; the lines above say why."
is_axe "$AXE" || step "Fetching axe-core" again fetch_axe || die "npm's registry did not give axe-core; the lines above say why."
export COFFERDAM_TEST_CHROMIUM COFFERDAM_TEST_AXE=$AXE COFFERDAM_TEST_SHOTS=$REPOSITORY/target/console-shots
PYTHONDONTWRITEBYTECODE=1 exec "$BROWSER_PACKAGES/bin/python" -m pytest -p no:cacheprovider -q --rootdir tests/console tests/console "$@"
