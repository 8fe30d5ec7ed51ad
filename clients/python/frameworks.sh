#!/usr/bin/env bash
# Runs the frameworks' own suites of sandboxes, and our tests of those that have none, against daemons of its own: a line
# for each framework, and the errors if something failed. Fetches each framework from PyPI, once, into a virtual
# environment of its own. README.md lists the checks that cannot hold, and why.
#
#   clients/python/frameworks.sh [--approvals] [NAME…] [-- PYTEST-ARGUMENTS…]
#
# --approvals   instead, tool calls of each under the profile `build`, where a reviewer decides on them: a program that sees
#               what is asked, approves most and denies some. README.md says what that shows.
#
# NAME: deepagents, harbor, harbor_oldest, inspect, minisweagent, openai_agents, pydantic_ai, ray, swerex (all of them)
# COFFERDAM_TEST_COFFERD=PROGRAM   cofferd (target/debug/cofferd)
# COFFERDAM_TEST_PROFILE=NAME      the profile that the suites run with, without --approvals (harness)
# COFFERDAM_TEST_IMAGE=NAME        an image with bash and Python (images/dev, built unless it is there)
# COFFERDAM_TEST_PYTHON=PROGRAM    a Python of 3.12 or newer, for those that need it (the first that is found)
# COFFERDAM_LONG=1                 fail where there is none (tests/run.sh --long)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
REPOSITORY=$(cd ../.. && pwd)
# shellcheck source=/dev/null
source "$REPOSITORY/deploy/lib/say.sh"
PLACE=$REPOSITORY/target/tools/frameworks
LOGS=$REPOSITORY/target/frameworks
WANTED=tests/frameworks/requirements
NAMES=(deepagents harbor harbor_oldest inspect minisweagent openai_agents pydantic_ai ray swerex)
# The least that has to hold of a framework's own checks, and of whole runs where it has no checks. Deep Agents: 79 in each of
# two places.
declare -A OWN_CHECKS=([deepagents]=158 [inspect]=42 [pydantic_ai]=34 [swerex]=47)
declare -A WHOLE_RUNS=([harbor]=6 [harbor_oldest]=5 [minisweagent]=1 [openai_agents]=2 [ray]=1)
# The same for --approvals: calls that a reviewer approves, and denies.
declare -A APPROVED=(
    [deepagents]=10 [harbor]=25 [harbor_oldest]=25 [inspect]=8 [minisweagent]=8 [openai_agents]=7 [pydantic_ai]=5 [ray]=5 [swerex]=11
)
declare -A DENIED=(
    [deepagents]=2 [harbor]=1 [harbor_oldest]=1 [inspect]=1 [minisweagent]=2 [openai_agents]=2 [pydantic_ai]=1 [ray]=1 [swerex]=1
)

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

# python_for NAME: the Python that it runs with, if there is one.
python_for() {
    local program
    if [[ $1 != harbor* ]]; then echo python3 && return; fi
    for program in "${COFFERDAM_TEST_PYTHON-}" python3 python3.{14,13,12} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
        if [[ -n $program ]] && "$program" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
            echo "$program" && return
        fi
    done
    return 1
}

# prepare NAME PYTHON: its virtual environment.
prepare() {
    local place=$PLACE/$1
    if cat "$WANTED/common.txt" "$WANTED/$1.txt" | cmp -s - "$place/made-of"; then return 0; fi
    # With the package itself: frameworks find some integrations by its entry points.
    rm -rf "$place" && "$2" -m venv "$place" &&
        again "$place/bin/pip" install --quiet --disable-pip-version-check --requirement "$WANTED/$1.txt" --editable . &&
        { [[ $1 != swerex ]] || fetch_tests_of_swerex "$place"; } &&
        cat "$WANTED/common.txt" "$WANTED/$1.txt" >"$place/made-of"
}

# They are in its source alone.
fetch_tests_of_swerex() {
    local wanted
    wanted=$(grep '^swe-rex==' "$WANTED/swerex.txt")
    again "$1/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: --dest "$1/source" "$wanted" &&
        tar -xzf "$1"/source/*.tar.gz -C "$1/source" --strip-components 1
}

# suite NAME PYTEST-ARGUMENTS…
suite() {
    local name=$1 python log=$LOGS/$1$APPROVALS.log counts=$LOGS/$1$APPROVALS.counts
    local status=0 began=$SECONDS passed=0 failed=0 skipped=0 own=0 whole=0 warm=0 ready=0 approved=0 denied=0 missed=()
    local tests=(tests/frameworks/suite_"${name%_oldest}"*.py)
    [[ -z $APPROVALS ]] || tests=(tests/frameworks/approvals/consent_"${name%_oldest}".py)
    shift
    if ! python=$(python_for "$name"); then
        printf '  – %-14s not run: needs Python 3.12 or newer; COFFERDAM_TEST_PYTHON names one\n' "$name"
        [[ -z ${COFFERDAM_LONG-} ]]
        return
    fi
    : >"$counts"
    if prepare "$name" "$python" >"$log" 2>&1; then
        COFFERDAM_TEST_COUNTS=$counts COFFERDAM_TEST_SWEREX=$PLACE/swerex/source/tests \
            "$PLACE/$name/bin/python" -m pytest -p no:cacheprovider -rxXs "${tests[@]}" "$@" >>"$log" 2>&1 ||
            status=$?
    fi
    { read -r passed failed skipped own whole warm ready && read -r _ approved denied; } <"$counts" || true
    ((passed > 0)) || status=1
    # Unless pytest was told to run some of them.
    if (($# == 0)) && [[ -n $APPROVALS ]]; then
        ((approved >= ${APPROVED[$name]})) || missed+=("$approved calls were approved, not ${APPROVED[$name]}")
        ((denied >= ${DENIED[$name]})) || missed+=("$denied calls were denied, not ${DENIED[$name]}")
        ((${#missed[@]} == 0)) || status=1
    elif (($# == 0)); then
        ((own >= ${OWN_CHECKS[$name]:-0})) || missed+=("$own of its own checks hold, not ${OWN_CHECKS[$name]}")
        ((whole >= ${WHOLE_RUNS[$name]:-0})) || missed+=("$whole whole runs, not ${WHOLE_RUNS[$name]}")
        ((${#missed[@]} == 0)) || status=1
    fi
    local counted="$warm of $ready runs warm"
    [[ -z $APPROVALS ]] || counted="$approved calls approved, $denied denied"
    printf '  %s %-14s %3d passed, %2d failed, %2d skipped, %s (%d s)\n' \
        "$( ((status == 0)) && echo ✓ || echo ✗)" "$name" "$passed" "$failed" "$skipped" "$counted" $((SECONDS - began))
    ((${#missed[@]} == 0)) || printf '    │ %s\n' "${missed[@]}"
    ((status == 0)) || { grep -E '^(FAILED|ERROR|E  )' "$log" || tail -n 20 "$log"; } | tail -n 20 | sed 's/^/    │ /'
    return "$status"
}

CHOSEN=() APPROVALS=''
while (($#)); do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --approvals) APPROVALS=.approvals ;;
    --) shift && break ;;
    *) [[ " ${NAMES[*]} " == *" $1 "* ]] || { usage >&2 && exit 2; }; CHOSEN+=("$1") ;;
    esac
    shift
done
((${#CHOSEN[@]})) || CHOSEN=("${NAMES[@]}")

mkdir -p "$LOGS"
export COFFERDAM_TEST_COFFERD=${COFFERDAM_TEST_COFFERD:-$REPOSITORY/target/debug/cofferd}
COFFERDAM_TEST_IMAGE=${COFFERDAM_TEST_IMAGE:-$("$REPOSITORY/tests/images.sh" dev)}
export COFFERDAM_TEST_IMAGE
FAILED=0
for name in "${CHOSEN[@]}"; do suite "$name" "$@" || FAILED=1; done
exit "$FAILED"
