#!/usr/bin/env bash
# Fuzzes every parser of hostile input: builds all targets, then runs them one after the other. Installs what is missing
# first. Corpora grow under target/fuzz-corpus and are used again; the seeds in tests/fuzz/seeds are where they begin.
#
#   tests/fuzz.sh [SECONDS-PER-TARGET] [TARGET…]
#
#   SECONDS-PER-TARGET  60 unless given; 0 only runs the seeds and what earlier runs have found
#   TARGET              all of them unless given: tests/fuzz.sh --list names them
#
# Exits with 1 when an input makes a target panic, take longer than FUZZ_TIMEOUT seconds (10) or more memory than
# FUZZ_MEMORY MiB (768), and prints the path of that input. FUZZ_SANITIZER=address (it needs a nightly compiler) looks
# for memory errors in C and in unsafe code, too.
set -uo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY" || exit 1
mkdir -p target
LOG_FILE=$REPOSITORY/target/fuzz.log
: >"$LOG_FILE"
for part in say packages toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

FUZZ=$REPOSITORY/tests/fuzz
CORPORA=$REPOSITORY/target/fuzz-corpus
SANITIZER=${FUZZ_SANITIZER:-none}
LIMIT_SECONDS=${FUZZ_TIMEOUT:-10}
LIMIT_MEMORY=${FUZZ_MEMORY:-768}
# One directory for each kind of build: they share nothing. Sanitizers are for nightly compilers only.
BUILD=$REPOSITORY/target/fuzz
CARGO=(cargo)
if [[ $SANITIZER != none ]]; then
    BUILD=$BUILD-$SANITIZER
    CARGO=(cargo +nightly)
fi

all_targets() { sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"/\1/p}' "$FUZZ/Cargo.toml"; }

ensure_fuzz_tools() {
    ensure_toolchain
    if ! command -v c++ >/dev/null; then install_packages "libFuzzer, which is C++" g++ || return 1; fi
    export PATH="$TOOLS/bin:$PATH"
    cargo_tool fuzz cargo-fuzz
}

build() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    BINARIES=$BUILD/$host/release
    # The crate is its own workspace, so cargo is started in it.
    (cd "$FUZZ" && step "Building the targets" "${CARGO[@]}" fuzz build --fuzz-dir "$FUZZ" --sanitizer "$SANITIZER" --target "$host" --target-dir "$BUILD")
}

statistic() { sed -n "s/^stat::$2: *//p" "$1"; }

# run TARGET: one process, and a line about what it did.
run() {
    local target=$1 corpus=$CORPORA/$1 log=$CORPORA/$1.log found status=0 dictionary=()
    mkdir -p "$corpus" "$CORPORA/$target.found"
    if [[ -f $FUZZ/dictionaries/$target.dict ]]; then dictionary=("-dict=$FUZZ/dictionaries/$target.dict"); fi
    local how_long=("-max_total_time=$RUN_SECONDS")
    if ((RUN_SECONDS == 0)); then how_long=(-runs=0); fi
    "$BINARIES/$target" "$corpus" "$FUZZ/seeds/$target" "${dictionary[@]}" "${how_long[@]}" -max_len=16384 \
        "-timeout=$LIMIT_SECONDS" "-rss_limit_mb=$LIMIT_MEMORY" "-artifact_prefix=$CORPORA/$target.found/" \
        -print_final_stats=1 >"$log" 2>&1 </dev/null || status=$?
    if ((status == 0)); then
        note "✓ $target: $(statistic "$log" number_of_executed_units) executions, $(statistic "$log" peak_rss_mb) MiB at most, $(find "$corpus" -type f | wc -l) inputs kept"
        return 0
    fi
    found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    complain "✗ $target: $(grep -m 1 -E 'panicked at|ERROR: libFuzzer' "$log" || echo "ended with status $status")"
    grep -m 1 -A 2 'panicked at' "$log" | tail -n +2 | cut -c -400 | sed 's/^/    │ /' >&2
    note "the input: ${found:-none was written}"
    note "again: $BINARIES/$target ${found:-INPUT}"
    note "the whole log: $log"
    return 1
}

RUN_SECONDS=60
case ${1:-} in
-h | --help) usage && exit 0 ;;
--list) all_targets && exit 0 ;;
'' | *[!0-9]*) ;;
*)
    RUN_SECONDS=$1
    shift
    ;;
esac
mapfile -t KNOWN < <(all_targets)
TARGETS=("$@")
((${#TARGETS[@]})) || TARGETS=("${KNOWN[@]}")
for target in "${TARGETS[@]}"; do
    [[ " ${KNOWN[*]} " == *" $target "* ]] || die "There is no target $target; there are: ${KNOWN[*]}"
done

title "Fuzzing"
ensure_fuzz_tools || die "A tool that fuzzing needs could not be installed; the lines above say why."
build || die "The targets could not be built; the lines above say why."
FAILED=()
for target in "${TARGETS[@]}"; do
    run "$target" || FAILED+=("$target")
done
((${#FAILED[@]} == 0)) || die "Failed: ${FAILED[*]}"
