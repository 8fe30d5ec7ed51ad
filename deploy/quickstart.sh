#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a working Cofferdam: installs what is missing (Docker Engine, compiler,
# busybox), builds unless this version is installed, and calls `coffer demo`, which shows the main job and removes
# everything. Can be run again at any time; nothing of an installed Cofferdam is touched.
#
#   deploy/quickstart.sh [OPTION…]
#
# The options are those of `coffer demo`, such as --keep and --repository DIR.
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=$REPOSITORY/target/quickstart.log
: >"$LOG_FILE"
for part in say packages engine busybox toolchain; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

PROGRAMS=''
case ${1:-} in
-h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

# Sets PROGRAMS, a directory with cofferd and coffer of the sources' version, if such are installed.
find_installed_programs() {
    local version installed
    version=$(sed -n 's/^version *= *"\(.*\)".*/\1/p' "$REPOSITORY/Cargo.toml" | head -n 1)
    installed=$(dirname "$(command -v cofferd)")
    [[ $("$installed/cofferd" --version 2>/dev/null) == "cofferd $version" ]] &&
        "$installed/coffer" demo --help >/dev/null 2>&1 &&
        [[ $("$installed/coffer" --version 2>/dev/null) == "coffer $version" ]] &&
        PROGRAMS=$installed
}

# Compiles them for the demonstration: optimised less than a release, which takes three times as long.
#
# cofferd embeds static programs. Its build script would compile these and what they use apart from everything else, so they
# come first, and all is static like them (crates/decisions/0060-compile-the-demonstration-once.md).
build_programs() {
    local target built
    deploy/console-assets.sh || note "– xterm.js could not be fetched: the web console shows recordings as text"
    target=$(rustc -vV | sed -n 's/^host: //p')
    PROGRAMS=${CARGO_TARGET_DIR:-$REPOSITORY/target}/quickstart
    built=${CARGO_TARGET_DIR:-$REPOSITORY/target}/$target/quickstart
    step "Compiling what goes into containers (the first time takes minutes)" \
        compile "$target" --bin coffer-guest --bin coffer-host-worker --bin coffer-egress
    export COFFER_GUEST_BINARY=$built/coffer-guest COFFER_HOST_WORKER_BINARY=$built/coffer-host-worker
    export COFFER_EGRESS_BINARY=$built/coffer-egress
    step "Compiling cofferd and coffer (the first time takes minutes)" compile "$target" --bin cofferd --bin coffer
    mkdir -p "$PROGRAMS"
    ln -f "$built/cofferd" "$built/coffer" "$PROGRAMS"
}

# compile TARGET ARGUMENTS…: with the same packages each time, so that what they share has the same features and is compiled once.
compile() {
    local packages=(cofferd coffer cofferdam-guest cofferdam-host-worker cofferdam-egress-worker)
    CARGO_ENCODED_RUSTFLAGS=-Ctarget-feature=+crt-static \
        cargo build --profile quickstart --locked --target "$1" "${packages[@]/#/--package=}" "${@:2}"
}

title "Set-up"
need_root "start cofferd, which mounts workspaces into containers,"
ensure_engine || die "No Docker Engine could be started; the lines above say why."
ensure_busybox || die "No static busybox could be installed; the lines above say why."
if find_installed_programs; then
    note "cofferd is installed in $PROGRAMS: nothing is built"
else
    ensure_toolchain
fi
note "$(engine_summary)"

if [[ -z $PROGRAMS ]]; then
    title "Build"
    build_programs
    need_root "start cofferd" # again: the build may have outlasted sudo's memory
fi

DOCKER_HOST=$(engine_endpoint)
export DOCKER_HOST
as_root "$PROGRAMS/coffer" demo --busybox "$BUSYBOX" "$@" || exit

programs=${PROGRAMS#"$REPOSITORY/"}
title "Next"
say "  sudo $programs/coffer up   a daemon for your own tries"
say "  $programs/coffer doctor    what this host can and cannot do"
say "  $programs/coffer --help    everything else that coffer can do"
say "  tests/run.sh                       all tests"
say "To install it: docs/src/operating/install.md. The default image is made of $BUSYBOX."
