#!/usr/bin/env bash
# Cross-builds Cofferdam for 64-bit ARM and runs it: under qemu-user what needs no kernel of that architecture, and filters, namespaces and
# BPF in a virtual machine of Debian's arm64 packages, without KVM. Writes tests/hosts/arm64.json, and of it the table of
# docs/src/operating/arm64.md: each check, and whether it works, is refused, fails or is not run, in the words of the program or of the reason.
#
#   tests/hosts/arm64.sh [--keep]
#
#   --keep   leaves target/arm64, which has gigabytes, for the next run
#
# Needs Debian, root and rustup. CARGO_BUILD_JOBS bounds the processors of the build, COFFERDAM_MACHINES keeps the packages of the virtual
# machine (target/machines).
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=$REPOSITORY/target/arm64.log
: >"$LOG_FILE"
for part in say packages toolchain; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

TRIPLE=aarch64-unknown-linux-gnu
LIBRARIES=/usr/aarch64-linux-gnu
TARGET=$REPOSITORY/target/arm64
PROGRAMS=$TARGET/$TRIPLE/debug
STATIC=$TARGET/$TRIPLE/static/$TRIPLE/static-dev
# Seconds that the tests of one crate may take.
PATIENCE=1500
# Crates in which numbers of system calls, filters, layouts of structures, page sizes or the order of bytes matter.
CRATES=(audit busybox containers doctor egress-worker file-ops guest host-launch host-worker jail loopback-dial node-id process-memory seal
    steering worker-protocol)
# shellcheck source=arm64-tests.sh
source "$REPOSITORY/tests/hosts/arm64-tests.sh"
# shellcheck source=arm64-machine.sh
source "$REPOSITORY/tests/hosts/arm64-machine.sh"

KEEP=''
case ${1:-} in
--keep) KEEP=1 ;;
'') ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
esac

SCRATCH=$(mktemp -d)
clean_up() {
    as_root rm -rf "$SCRATCH"
    [[ -n $KEEP ]] || rm -rf "$TARGET"
}
trap clean_up EXIT

# record CHECK RESULT WORDS
record() {
    local words
    words=$(tr -s '[:space:]' ' ' <<<"$3" | tr -cd '[:print:]' | sed "s#$REPOSITORY/##g;s#$SCRATCH/##g;s/ *\$//" | cut -c 1-400)
    printf '%s\t%s\t%s\n' "$1" "$2" "$words" >>"$SCRATCH/checks"
    note "$2: $1 – $words"
}

# run COMMAND…: with its output in $SCRATCH/said and the log.
run() {
    local status=0
    printf '\n==== %s\n' "$*" >>"$LOG_FILE"
    "$@" >"$SCRATCH/said" 2>&1 </dev/null || status=$?
    cat "$SCRATCH/said" >>"$LOG_FILE"
    return "$status"
}

last_words() { grep -v '^ *$' "$SCRATCH/said" | tail -n 1; }

# works CHECK COMMAND…: the command has to end well.
works() {
    local result=works
    run "${@:2}" || result=fails
    record "$1" "$result" "$(last_words)"
}

# refused CHECK WORDS COMMAND…: the command has to fail with these words.
refused() {
    local result=refused
    if run "${@:3}" || ! grep -qF -- "$2" "$SCRATCH/said"; then result=fails; fi
    record "$1" "$result" "$(grep -F -- "$2" "$SCRATCH/said" || last_words)"
}

# With the loader of the cross-compiler: `-L` would have paths of the root directory lead there as well.
in_user() {
    timeout "$PATIENCE" qemu-aarch64 "$LIBRARIES/lib/ld-linux-aarch64.so.1" --library-path "$LIBRARIES/lib" "$@"
}

ensure_cross_tools() {
    local missing=() command
    local -A package=([aarch64-linux-gnu-gcc]=gcc-aarch64-linux-gnu [qemu-aarch64]=qemu-user [qemu-system-aarch64]=qemu-system-arm
        [mmdebstrap]=mmdebstrap [cpio]=cpio [depmod]=kmod [python3]=python3-minimal)
    for command in "${!package[@]}"; do
        command -v "$command" >/dev/null || missing+=("${package[$command]}")
    done
    [[ -e $LIBRARIES/lib/libc.a ]] || missing+=(libc6-dev-arm64-cross)
    ((${#missing[@]} == 0)) || install_packages "Building and running for arm64" "${missing[@]}"
    command -v rustup >/dev/null || die "The standard library for $TRIPLE comes by rustup, which is not here: https://rustup.rs."
    step "Rust for $TRIPLE" rustup target add "$TRIPLE"
}

# Without debugging information, which would take most of the disk.
cross() {
    env CARGO_TARGET_DIR="$TARGET" CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        cargo "$1" --locked --target "$TRIPLE" "${@:2}"
}

build_tests() {
    local crate arguments=()
    for crate in "${CRATES[@]}"; do arguments+=(--package "cofferdam-$crate"); done
    for crate in "${!WHOLE[@]}"; do arguments+=(--test "${crate#*/}"); done
    cross test --no-run --lib --bins "${arguments[@]}" --message-format json-render-diagnostics >"$SCRATCH/messages"
}

# A line for each test program: crate, name and path.
list_tests() {
    python3 - "$SCRATCH/messages" <<'END' | sort -u
import json, sys

for line in open(sys.argv[1], encoding="utf-8"):
    message = json.loads(line)
    if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
        crate = message["package_id"].rsplit("/", 1)[-1].split("#")[0]
        target = message["target"]
        name = target["name"] if target["kind"] == ["test"] else "unit"
        print(crate, name, message["executable"])
END
}

# Leaves out programs without a test.
with_tests() {
    local crate name program
    while read -r crate name program; do
        if in_user "$program" --list </dev/null | grep -c ': test$' >/dev/null; then printf '%s %s %s\n' "$crate" "$name" "$program"; fi
    done
}

# What the linker made: programs for the architecture, and static ones for containers.
are_for_arm() {
    local program kind
    for program in "$PROGRAMS/cofferd" "$PROGRAMS/coffer" "$STATIC/coffer-guest" "$STATIC/coffer-host-worker" "$STATIC/coffer-egress"; do
        kind=$(aarch64-linux-gnu-readelf --file-header --program-headers "$program") || return 1
        grep -q 'Machine: *AArch64' <<<"$kind" || { printf '%s is for another processor\n' "$program" && return 1; }
        [[ $program != "$STATIC"/* ]] || ! grep -q INTERP <<<"$kind" || { printf '%s needs a loader\n' "$program" && return 1; }
    done
    printf 'cofferd and coffer with the loader of arm64; coffer-guest, coffer-host-worker and coffer-egress static\n'
}

# A log whose bytes are those that the other architecture writes, as docs/src/audit-format.md has them.
verify_log() {
    mkdir -p "$SCRATCH/log"
    cp crates/audit/tests/vectors/signed.jsonl "$SCRATCH/log/00000000000000000001.jsonl"
    in_user "$PROGRAMS/coffer" audit verify "$SCRATCH/log" >"$SCRATCH/verdict" && head -n 1 "$SCRATCH/verdict"
}

change_log() {
    sed -i '2s/"daemon_started"/"daemon_stopped"/' "$SCRATCH/log/00000000000000000001.jsonl"
    in_user "$PROGRAMS/coffer" audit verify "$SCRATCH/log"
}

check_configuration() {
    sed 's#^workspace_roots:.*#workspace_roots: []#' deploy/cofferd.example.yaml >"$SCRATCH/cofferd.yaml"
    in_user "$PROGRAMS/cofferd" --config "$SCRATCH/cofferd.yaml" --check-config >"$SCRATCH/verdict" && cat "$SCRATCH/verdict"
}

# Of the host alone, without an engine and a daemon. Its calls of the kernel are those that qemu-user has.
examine() { COFFERDAM_ENDPOINT=unix:$SCRATCH/none.sock in_user "$PROGRAMS/coffer" doctor --engine "$SCRATCH/none.sock"; }

package_foreign() {
    env CARGO_TARGET_DIR="$TARGET/$TRIPLE" deploy/package.sh --profile debug --out "$SCRATCH/dist" deb
}

# What libtest sums up, or the tests that failed.
test_words() {
    local passed failed
    passed=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$SCRATCH/said")
    failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$SCRATCH/said")
    if [[ -n $failed ]]; then printf '%s passed; failed: %s\n' "$passed" "$(tr '\n' ' ' <<<"$failed")"; elif [[ -n $passed ]]; then
        printf '%s tests\n' "$passed"
    else last_words; fi
}

# Runs the unit tests of a crate but those that arm64-tests.sh leaves to the virtual machine.
test_in_user() {
    local crate=$1 program=$2 result=works skips=(--test-threads 2) filter
    # Its tests give descriptors fixed numbers: one at a time.
    [[ $crate != guest ]] || skips=(--test-threads 1)
    for filter in ${NEEDS_KERNEL[$crate]-}; do skips+=(--skip "$filter"); done
    pushd "crates/$crate" >/dev/null
    run in_user "$program" "${skips[@]}" || result=fails
    popd >/dev/null
    # Where all of them need the kernel, the virtual machine alone has a line.
    [[ $result == works && $(test_words) == "0 tests" ]] || record "unit tests of $crate, qemu-user" "$result" "$(test_words)"
}

versions() {
    printf 'rustc\t%s\n' "$(rustc --version | cut -d ' ' -f 2)"
    printf 'gcc\t%s\n' "$(aarch64-linux-gnu-gcc -dumpfullversion)"
    printf 'qemu\t%s\n' "$(qemu-aarch64 --version | sed -n 's/^qemu-aarch64 version \([^ ]*\).*/\1/p')"
    printf 'cofferdam\t%s\n' "$(in_user "$PROGRAMS/cofferd" --version | cut -d ' ' -f 2)"
    [[ ! -s $SCRATCH/kernel ]] || printf 'kernel of the virtual machine\t%s\n' "$(cat "$SCRATCH/kernel")"
}

title "arm64"
ensure_toolchain
ensure_cross_tools || die "The tools for arm64 could not be installed; the lines above say why."
step "Building cofferd and coffer for arm64 (takes minutes)" cross build --package cofferd --package coffer --bins ||
    die "Cofferdam does not build for arm64; the lines above say why."
step "Building tests for arm64" build_tests || die "The tests do not build for arm64; the lines above say why."
list_tests | with_tests >"$SCRATCH/tests"

title "Under qemu-user"
works "programs for arm64" are_for_arm
works "cofferd --version" in_user "$PROGRAMS/cofferd" --version
works "coffer --version" in_user "$PROGRAMS/coffer" --version
works "configuration, checked" check_configuration
works "audit log of another architecture, verified" verify_log
refused "the same, with a changed record" "record 2 was edited" change_log
run examine || true
record "coffer doctor" "$(grep -qE '^ok +processor +aarch64$' "$SCRATCH/said" && echo works || echo fails)" \
    "processor aarch64; missing: $(sed -n 's/^MISSING  *//p' "$SCRATCH/said" | sed 's/  .*//' | paste -sd , -)"
refused "Debian package of these programs on another architecture" "is for another processor" package_foreign
while read -r crate name program; do
    [[ $name != unit ]] || test_in_user "$crate" "$program"
done <"$SCRATCH/tests"
record "tests that install filters, and those of namespaces, mounts and BPF" "not run" "qemu-user has no such calls; the virtual machine runs them"

title "In a virtual machine of arm64"
if make_machine && boot_machine; then
    while IFS=$'\t' read -r check result words; do record "$check" "$result" "$words"; done <"$SCRATCH/from-machine"
else
    record "virtual machine of arm64" fails "it did not run all tests; target/machines/arm64.log has its output"
fi
record "runs in containers" "not run" "an engine of arm64 takes a host of that architecture, or days of emulation"

versions >"$SCRATCH/versions"
tests/hosts/arm64_table.py "$SCRATCH/versions" "$SCRATCH/checks"
say "tests/hosts/arm64.json and the table of docs/src/operating/arm64.md are of this run."
if grep -q $'\tfails\t' "$SCRATCH/checks"; then die "Checks failed on arm64; $LOG_FILE has their output."; fi
