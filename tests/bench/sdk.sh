#!/usr/bin/env bash
# What the SDKs of Python and TypeScript add to a call: a read of 4 KiB by each, against the same read by a stub of the library
# that it is made with, in turns, on one daemon. Fetches that library and Node.js first, as tests/run.sh does. Needs root and
# Docker Engine. It is for the eye: nothing fails because of a time.
#
#   tests/bench/sdk.sh [--calls N] [--profile sync|aio]
#
#   --calls     how many of each, after 200 that do not count (5,000)
#   --profile   in place of times, where the time of one half of the Python SDK goes
#
# COFFERDAM_TEST_COFFERD=PROGRAM   the daemon (target/release/cofferd, which is built)
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$REPOSITORY"
[[ ${1-} != --help ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0; }
mkdir -p target
# shellcheck disable=SC2034 # for say.sh
LOG_FILE=$REPOSITORY/target/bench.log
: >"$LOG_FILE"
for part in say packages engine toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

ensure_engine || die "No Docker Engine could be started; the lines above say why."
if ! { ensure_vendor_packages && ensure_conformance && ensure_typescript_sdk; }; then
    die "A library could not be installed; the lines above say why."
fi
if [[ -z ${COFFERDAM_TEST_COFFERD-} ]]; then
    ensure_toolchain
    step "Building cofferd" cargo build --release --locked -p cofferd
    export COFFERDAM_TEST_COFFERD=$REPOSITORY/target/release/cofferd
fi
NODE=$CONFORMANCE/bin/node
step "Compiling the TypeScript SDK" "$NODE" clients/typescript/node_modules/typescript/bin/tsc --project clients/typescript
also=()
[[ " $* " == *" --profile "* ]] || also=(--also "$NODE" clients/typescript/dist/bench/overhead.js)
export PYTHONPATH=clients/python/src:clients/python/tests
exec "$VENDOR_PACKAGES/bin/python" clients/python/bench/overhead.py "$@" "${also[@]}"
