#!/usr/bin/env bash
# The benchmark of both lanes; tests/bench/README.md says what it compares. Builds what it needs first: cofferd
# and itself in the release profile, and a static ripgrep (once, under target/tools). Takes a few minutes after that.
#
#   tests/bench.sh [--lane container|host|writes|sessions|files|audit|gateway] [--json FILE] [--check] [--rounds N] [--seconds N] [--tree DIRECTORY]
#   tests/bench.sh --lane egress|opened|companions|observed|balanced [--debug] [--json FILE] [--check] [--rounds N]
#   tests/bench.sh --lane forks [--debug] [--ratios] [--json FILE] [--check] [--rounds N]
#   tests/bench.sh --lane access [--debug] [--json FILE] [--check] [--write-baseline]
#   tests/bench.sh --lane runs [--debug] [--ratios] [--plot FILE] [--costs FILE] [--write-baseline] [--record-trace] …
#
#   --debug    the debug build, which is there for tests, in place of a release build; its ratios have a baseline of their own
#
# The lane of runs is compared with others that make sandboxes: each is installed from PyPI, by hashes, into an environment of its
# own under target/tools/peers. One that cannot be installed is left out, and the output says so.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
# shellcheck disable=SC2034 # for say.sh
LOG_FILE=$REPOSITORY/target/bench.log
: >"$LOG_FILE"
for part in say packages engine busybox toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

# As ripgrep's own releases are built, and static like them, for it must run in a container that has no libraries.
build_ripgrep() {
    RUSTFLAGS='-C target-feature=+crt-static' cargo install ripgrep --version 15.2.0 --locked \
        --profile release-lto --target "$TRIPLE" --root "$REPOSITORY/target/tools/ripgrep"
}

PEERS=$REPOSITORY/target/tools/peers
PEER_REQUIREMENTS=$REPOSITORY/tests/bench/peers

# make_peer NAME IMAGE: its environment. SWE-ReX also starts a server in the container: that is installed for the image's Python, and
# compiled by it, because the container cannot fetch it and its mount is read-only.
make_peer() {
    local place=$PEERS/$1 wanted=$PEER_REQUIREMENTS/$1.txt
    local install=(install --quiet --disable-pip-version-check --only-binary ':all:' --require-hashes --requirement "$wanted")
    rm -rf "$place" && python3 -m venv "$place" && "$place/bin/pip" "${install[@]}" || return 1
    if [[ $1 == swerex ]]; then
        local python
        python=$(engine run --rm --network none "$2" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') &&
            "$place/bin/pip" "${install[@]}" --implementation cp --python-version "$python" --target "$place/server" &&
            printf '#!/bin/sh\nexec python3 -c "from swerex.server import main; main()" "$@"\n' >"$place/server/bin/swerex-remote" &&
            chmod 0755 "$place/server/bin/swerex-remote" &&
            engine run --rm --network none --user 0:0 --volume "$place/server:/opt/swerex" "$2" python3 -m compileall -q /opt/swerex ||
            return 1
    fi
    cp "$wanted" "$place/made-of"
}

# ensure_peers IMAGE
ensure_peers() {
    local name
    mkdir -p "$PEERS"
    for name in llm_sandbox swerex; do
        if cmp -s "$PEER_REQUIREMENTS/$name.txt" "$PEERS/$name/made-of"; then continue; fi
        step "Installing $name, to compare with" make_peer "$name" "$1" || rm -rf "${PEERS:?}/$name"
    done
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
PROFILE=release DAEMON=(-p cofferd -p coffer) TESTS=(-p cofferdam-tests) ARGUMENTS=()
for argument in "$@"; do
    if [[ $argument == --debug ]]; then
        # As tests/run.sh builds them: crates alone would be compiled again, with fewer features.
        PROFILE=dev DAEMON=(--workspace --bins) TESTS=(--workspace)
    else
        ARGUMENTS+=("$argument")
    fi
done
if [[ " $* " == *" --lane runs "* ]]; then
    IMAGE=$(tests/images.sh dev)
    if [[ " $* " != *" --ratios "* && " $* " != *" --write-baseline "* && " $* " != *" --record-trace "* ]]; then
        ensure_peers "$IMAGE"
        export COFFERDAM_BENCH_PEERS=$PEERS
    fi
elif [[ " $* " == *" --lane forks "* ]]; then
    tests/images.sh dev >/dev/null
elif [[ " $* " == *" --lane balanced "* ]]; then
    ensure_networks || die "iproute2 could not be installed; the lines above say why."
    ensure_envoy || die "Envoy could not be installed; the lines above say why."
    distribution_tool haproxy "HAProxy, to compare with" || die "HAProxy could not be installed; the lines above say why."
elif [[ $BENCH == lane && " $* " != *" --lane egress "* && " $* " != *" --lane opened "* && " $* " != *" --lane companions "* &&
    " $* " != *" --lane observed "* && ! -x target/tools/ripgrep/bin/rg ]]; then
    step "Compiling ripgrep (once, takes minutes)" build_ripgrep
fi
step "Building cofferd" cargo build --profile "$PROFILE" --locked "${DAEMON[@]}"
COMMAND=(cargo bench --profile "$PROFILE" --locked "${TESTS[@]}" --bench "$BENCH")
step "Building the benchmark" "${COMMAND[@]}" --no-run

# It makes runs, and looks into processes of the engine: root's work, as the tests are.
if ((EUID != 0)); then
    export "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$TRIPLE")_RUNNER=sudo -E"
fi
exec "${COMMAND[@]}" --quiet -- "${ARGUMENTS[@]}"
