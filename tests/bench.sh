#!/usr/bin/env bash
# The benchmark of both lanes; tests/bench/README.md says what it compares. Builds what it needs first: cofferd
# and itself in the release profile, and a static ripgrep (once, under target/tools). Takes a few minutes after that.
#
#   tests/bench.sh [--lane container|host|audit|gateway|access] [--json FILE] [--check] [--rounds N] [--seconds N] [--tree DIRECTORY]
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
# shellcheck disable=SC2034 # for say.sh
LOG_FILE=$REPOSITORY/target/bench.log
: >"$LOG_FILE"
for part in say packages engine busybox toolchain; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

# As ripgrep's own releases are built, and static like them, for it must run in a container that has no libraries.
build_ripgrep() {
    RUSTFLAGS='-C target-feature=+crt-static' cargo install ripgrep --version 15.2.0 --locked \
        --profile release-lto --target "$TRIPLE" --root "$REPOSITORY/target/tools/ripgrep"
}

# What deciding over a call takes: a benchmark of the gateway's crate alone.
if [[ " $* " == *" --lane gateway "* ]]; then
    ensure_toolchain
    arguments=()
    if [[ " $* " == *" --check "* ]]; then arguments+=(--check); fi
    exec cargo bench --quiet --locked -p cofferdam-gateway --bench decide -- "${arguments[@]}"
fi

BENCH=lane
if [[ " $* " == *" --lane access "* ]]; then BENCH=access; fi

ensure_engine || die "No Docker Engine could be started; the lines above say why."
ensure_busybox || die "No static busybox could be installed; the lines above say why."
ensure_toolchain
TRIPLE=$(rustc -vV | sed -n 's/^host: //p')
if [[ $BENCH == lane && ! -x target/tools/ripgrep/bin/rg ]]; then
    step "Compiling ripgrep (once, takes minutes)" build_ripgrep
fi
step "Building cofferd" cargo build --release --locked -p cofferd
step "Building the benchmark" cargo bench --locked -p cofferdam-tests --bench "$BENCH" --no-run

# It makes runs, and looks into processes of the engine: root's work, as the tests are.
if ((EUID != 0)); then
    export "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$TRIPLE")_RUNNER=sudo -E"
fi
exec cargo bench --quiet --locked -p cofferdam-tests --bench "$BENCH" -- "$@"
