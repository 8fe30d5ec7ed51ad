#!/usr/bin/env bash
# Every check of this repository. Installs what is missing first (Docker Engine, gVisor, compiler, busybox, tools), like
# deploy/quickstart.sh. The tests come last, so that the last lines are the test runner's own summary. If an earlier check
# failed, it is named once more after that, with the last lines that it printed, and the exit code says so although the tests passed.
#
#   tests/run.sh [--quick | --no-engine] [--long] [-- NEXTEST-ARGUMENTS…]
#
#   --quick       only the tests, no lint and no ratios
#   --no-engine   only the tests that need no Docker Engine
#   --long        races, kills and random cases in full, the image of Rust, the suites of agent frameworks, jobs of Slurm, and in
#                 virtual machines the Debian package, every engine and arm64, which takes hours (sets COFFERDAM_LONG=1)
set -uo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY" || exit 1
mkdir -p target
LOG_FILE=$REPOSITORY/target/checks.log
: >"$LOG_FILE"
# Also those of the scripts that this one starts.
export COFFERDAM_FAILURES=$REPOSITORY/target/failures
rm -rf "$COFFERDAM_FAILURES" && mkdir "$COFFERDAM_FAILURES"
for part in say packages engine runsc busybox toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

QUICK='' NO_ENGINE=''
FAILED=()
while (($#)); do
    case $1 in
    --quick) QUICK=1 ;;
    --no-engine) QUICK=1 NO_ENGINE=1 ;;
    --long) export COFFERDAM_LONG=1 NEXTEST_PROFILE=long ;;
    -h | --help) usage && exit 0 ;;
    --) shift && break ;;
    *) usage >&2 && exit 2 ;;
    esac
    shift
done

# check "What it checks" command…: goes on after a failure and remembers it.
check() { step "$@" || FAILED+=("$1"); }

# part "What it checks" command…: the same for one that prints a line for each of its steps, and no more.
part() {
    local what=$1 printed
    shift
    printed=$(mktemp "$REPOSITORY/target/part.XXXXXX")
    # A step of it is among its lines, and is not kept once more.
    if ! COFFERDAM_FAILURES='' "$@" 2>&1 | tee "$printed" >&2; then
        FAILED+=("$what")
        keep_failure "$what" <"$printed"
    fi
    rm -f "$printed"
}

lint() {
    title "Lint"
    check "Formatting" cargo fmt --all --check
    # Also those that only other platforms use: they are in the graph that is looked at.
    check "Dependencies: all of them" cargo fetch --locked
    check "Dependencies: licences, bans, sources" cargo deny --offline check bans licenses sources
    check_advisories
    check "API definitions" buf lint
    check "Code that is generated from them" crates/wire/generate.sh --check
    if [[ -n ${COFFERDAM_LONG-} ]]; then
        check "The same, made again" cargo run --quiet --locked --manifest-path crates/wire/generate/Cargo.toml \
            --target-dir target/generate -- --check
        check "Fuzz targets compile" cargo check --quiet --locked --manifest-path tests/fuzz/Cargo.toml --bins \
            --target-dir target/fuzz-check
    fi
    check "Python SDK: style, types, generated code" clients/python/check.sh
    check "TypeScript SDK: style, types, generated code" env PATH="$CONFORMANCE/bin:$PATH" clients/typescript/check.sh
    check "Book" mdbook build docs
    check "Files: languages, and whose they are" tests/files.sh
    check "Book: the table of engines, and its results" tests/hosts/table.py --check
    local scripts
    mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
    check "Kubernetes: the files by its schemas" tests/fleet/kubernetes.sh
    check "64-bit ARM: the table by its result" tests/hosts/arm64_table.py --check
    check "Scripts" shellcheck --external-sources --source-path=SCRIPTDIR "${scripts[@]}"
}

# Clippy is the compiler of the build: its warnings are in the build's log, and cargo repeats those of what it does not
# compile again. Of the network cargo warns, too, and asks again.
no_warnings() { ! sed '/^warning: spurious network error/d' "$REPOSITORY/target/build.log" | grep -A 12 '^warning'; }

# The database of advisories is fetched from GitHub. Where that cannot be reached the check is left out, aloud.
check_advisories() {
    if step_quietly timeout 120 cargo deny fetch db; then
        check "Dependencies: known vulnerabilities" cargo deny check --disable-fetch advisories
    else
        note "– known vulnerabilities: not checked, for the RustSec database cannot be fetched from here"
    fi
}

step_quietly() { "$@" >>"$LOG_FILE" 2>&1 </dev/null; }

# Inputs of property tests are drawn by the tree that is tested: other ones for each change, the same ones whenever a
# commit is tested again. With uncommitted changes, or PROPTEST_RNG_SEED=random, they are drawn at random.
seed_property_tests() {
    local tree
    if [[ -z ${PROPTEST_RNG_SEED-} ]] && tree=$(git rev-parse --verify --quiet 'HEAD^{tree}' 2>/dev/null) &&
        git diff --quiet HEAD; then
        PROPTEST_RNG_SEED=$((16#${tree:0:12}))
    fi
    [[ ${PROPTEST_RNG_SEED-random} != random ]] || unset PROPTEST_RNG_SEED
    if [[ -n ${PROPTEST_RNG_SEED-} ]]; then
        export PROPTEST_RNG_SEED
        note "property tests: PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"
    fi
}

# While tools are fetched and installed, everything is compiled: the programs that the tests of the whole start, and the
# tests.
begin_build() {
    local targets=()
    [[ -n $QUICK ]] || targets=(--all-targets)
    fetch_console_assets
    { compile build --workspace --bins --locked && compile test --workspace "${targets[@]}" --no-run --locked; } \
        >"$REPOSITORY/target/build.log" 2>&1 </dev/null &
    BUILD=$!
}

# The console carries them, so they come before the build. Without them it shows recordings as text, and the tests of the browser say so.
fetch_console_assets() {
    ensure_conformance && deploy/console-assets.sh || FAILED+=("xterm.js")
}

# compile ARGUMENTS…: cargo. Unless --quick leaves lint out, Clippy is the compiler of this workspace's own crates, so that
# one build serves lint and tests. The test runner looks at the same build and needs the same compiler.
compile() {
    if [[ -n $QUICK ]]; then cargo "$@"; else RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo "$@"; fi
}

finish_build() {
    local status=0
    wait "$BUILD" || status=$?
    cat "$REPOSITORY/target/build.log"
    return "$status"
}

# The images of tests take minutes, most of them a mirror's: they are made while everything else is compiled.
prepare_images() {
    local image=dev
    [[ -z ${COFFERDAM_LONG-} ]] || image=rust # and dev, which it is made of
    : >"$REPOSITORY/target/images.log"
    COFFERDAM_NO_PULL=1 tests/images.sh "$image" >>"$REPOSITORY/target/images.log" 2>&1 </dev/null &
    IMAGES=$!
}

# Few tests need them: the others run without, and these fail at once.
await_images() {
    step "Images for the tests" finish_images && return 0
    FAILED+=("Images for the tests")
    complain "The images for the tests could not be made: the lines above and target/images.log say why. What needs them fails."
    export COFFERDAM_NO_IMAGES=1
}

finish_images() {
    local status=0
    wait "$IMAGES" || status=$?
    ((status == 0)) || tail -n 20 "$REPOSITORY/target/images.log"
    return "$status"
}

# Not every distribution has it. Only tests/gvisor needs it, and fails then.
register_gvisor() {
    (ensure_runsc) && return 0
    FAILED+=("gVisor")
    complain "gVisor could not be registered with the engine: the lines above say why. The tests of tests/gvisor fail."
}

# With a line for each, and apart from the test runner's tests, whose summary comes last. The suites take long, and so do all
# frameworks with a reviewer: without --long it is the quickest one.
check_frameworks() {
    local as=() reviewed=(pydantic_ai)
    ((EUID == 0)) || as=(sudo -E)
    [[ -z ${COFFERDAM_NO_IMAGES-} ]] || return 0
    note "agent frameworks, in target/frameworks:"
    if [[ -n ${COFFERDAM_LONG-} ]]; then
        reviewed=()
        part "Agent frameworks" "${as[@]}" clients/python/frameworks.sh
    fi
    note "agent frameworks, with a reviewer of their calls:"
    part "Agent frameworks with a reviewer" "${as[@]}" clients/python/frameworks.sh --approvals "${reviewed[@]}"
}

# Real jobs, with a line for each step. With the debug build, too.
check_slurm() {
    local as=()
    ((EUID == 0)) || as=(sudo -E)
    "${as[@]}" tests/fleet/slurm.sh >&2 || FAILED+=("Slurm")
}

# A build of its own, without the engine: qemu runs its programs.
check_arm64() { tests/hosts/arm64.sh >&2 || FAILED+=("arm64"); }

# With the debug build that the tests use. Times belong to a machine, so only ratios are compared, with a wide margin, and once more
# where others may have had the machine.
ratios() {
    local compare=(env RUSTC_WORKSPACE_WRAPPER=clippy-driver tests/bench.sh --lane runs --debug --ratios --rounds 10 --check)
    "${compare[@]}" || "${compare[@]}"
}

# With a line for each step, before the test runner's summary. They are made of the debug build.
check_packages() {
    tests/packages.sh || FAILED+=("Packages")
}

# Beside each engine that people have, in virtual machines. With the debug build, too.
check_hosts() {
    local as=()
    ((EUID == 0)) || as=(sudo -E)
    "${as[@]}" tests/hosts/run.sh >&2 || FAILED+=("Engines")
}

# In a browser, against a daemon of its own. With the debug build, too.
check_console() {
    local as=()
    ((EUID == 0)) || as=(sudo -E)
    part "Console in a browser" "${as[@]}" tests/console.sh
}

check_ratios() {
    [[ -z ${COFFERDAM_NO_IMAGES-} ]] || return 0
    check "Ratios of runs to the engine's own work" ratios
}

# Most tests wait for processes: twice as many as there are processors keep these at work.
parallel() { echo "$(($(nproc) * 2))"; }

# Mounts, namespaces and the engine need root; everything else was built as whoever calls.
run_tests() {
    title "Tests"
    seed_property_tests
    if ((EUID != 0)); then
        local host
        host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
        export "CARGO_TARGET_${host}_RUNNER=sudo -E"
    fi
    if [[ -n $NO_ENGINE ]]; then
        cargo nextest run --workspace --exclude cofferdam-tests --locked -E 'not binary(real_engine)' \
            --test-threads "$(parallel)" "$@"
        return
    fi
    step "Building cofferd, coffer and their tests" finish_build || return 1
    [[ -n $QUICK ]] || check "Clippy" no_warnings
    await_images
    [[ -n $QUICK || $# -gt 0 ]] || check_ratios
    [[ -n $QUICK || $# -gt 0 ]] || check_packages
    [[ -n $QUICK || $# -gt 0 ]] || check_console
    [[ -z ${COFFERDAM_LONG-} && (-n $QUICK || $# -gt 0) ]] || check_frameworks
    [[ -z ${COFFERDAM_LONG-} ]] || check_slurm
    [[ -z ${COFFERDAM_LONG-} ]] || check_hosts
    [[ -z ${COFFERDAM_LONG-} ]] || check_arm64
    # What tests start and see fail is no failure of a check.
    COFFERDAM_FAILURES='' compile nextest run --workspace --locked --test-threads "$(parallel)" "$@"
}

title "Set-up"
if [[ -n $NO_ENGINE ]]; then
    ensure_toolchain
    ensure_nextest || die "The test runner could not be installed; the lines above say why."
    run_tests "$@"
    exit
fi
[[ -z ${CI-} ]] || export CARGO_INCREMENTAL=0 # nobody builds there again
ensure_toolchain
if [[ -z $QUICK ]]; then
    ensure_rust_components || die "Clippy and rustfmt could not be installed; the lines above say why. --quick goes without."
fi
begin_build
ensure_engine || die "No Docker Engine could be started; the lines above say why."
register_gvisor
ensure_busybox || die "No static busybox could be installed; the lines above say why."
ensure_test_tools || die "A tool that the tests need could not be installed; the lines above say why."
if [[ -z $QUICK ]]; then
    ensure_lint_tools || die "A tool that the checks need could not be installed; the lines above say why. --quick goes without."
fi
prepare_images
note "$(engine_summary)"
note "$(rustc --version)"

if [[ -z $QUICK ]]; then lint; fi
if ((${#FAILED[@]})); then complain "Failed so far: ${FAILED[*]}. The tests run nevertheless."; fi
run_tests "$@" || FAILED+=("Tests")
if ((${#FAILED[@]})); then
    printf -v names '%s, ' "${FAILED[@]}"
    title "Failed: ${names%, }"
    show_failures
fi
((${#FAILED[@]} == 0))
