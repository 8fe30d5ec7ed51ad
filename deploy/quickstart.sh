#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a working Cofferdam: installs what is missing (Docker Engine, compiler,
# busybox), builds unless this version is installed, starts a cofferd of its own in a private directory, shows the main
# job on a clone of this repository, and cleans up. Can be run again at any time; nothing of an installed Cofferdam is
# touched.
#
#   deploy/quickstart.sh [--keep]
#
#   --keep   leave cofferd running at the end, and say how to talk to it
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=$REPOSITORY/target/quickstart.log
: >"$LOG_FILE"
for part in say packages engine busybox toolchain daemon demo; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done

KEEP='' PROGRAMS=''
case ${1:-} in
'') ;;
--keep) KEEP=1 ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    [[ $1 == -h || $1 == --help ]] && exit 0
    exit 2
    ;;
esac

clean_up() {
    local status=$?
    trap - EXIT
    if [[ -z ${DEMO:-} ]]; then exit "$status"; fi
    if ((status)) && [[ -s $DEMO/cofferd.log ]]; then as_root cat "$DEMO/cofferd.log" >>"$LOG_FILE"; fi
    demo_abandon
    stop_daemon || note "cofferd did not end by itself and was killed"
    remove_daemon_files || note "something is still mounted under $DEMO, which was left there"
    if ((status)); then complain "The quickstart did not come to its end. The whole log: $LOG_FILE"; fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

summary() {
    local programs=${PROGRAMS#"$REPOSITORY/"}
    title "That was Cofferdam, in $(duration "$SECONDS")"
    say "A run was made, read, searched and edited with consent; a forbidden command was refused; every call is on record."
    title "Next"
    if [[ -n $KEEP ]]; then
        say "cofferd is still running. Talk to it, and end it:"
        say "  export COFFERDAM_ENDPOINT=$COFFERDAM_ENDPOINT"
        say "  $BIN/coffer run create --profile review --clone $REPOSITORY"
        say "  kill $(<"$DEMO/pid") && rm -rf $DEMO"
    else
        say "  deploy/quickstart.sh --keep       the same, and leaves cofferd running for you"
        say "  $programs/coffer doctor   what this host can and cannot do"
        say "  $programs/coffer --help   everything else that coffer can do"
        say "  tests/run.sh                      all tests"
        say "To install it: README.md, \"Install it\". The default image is made of $BUSYBOX."
    fi
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
prepare_daemon
step "Starting cofferd" start_daemon

demo || die "The demonstration stopped at the command above."

if [[ -n $KEEP ]]; then trap - EXIT; fi
summary
