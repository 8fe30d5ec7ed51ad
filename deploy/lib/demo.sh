# shellcheck shell=bash
# The main job on real input, for someone who sees it for the first time: an agent works on a clone of this very
# repository, within what policy and its human allow, and everything is on record. Needs say.sh and daemon.sh.

DEMO_PROFILE=review
# Of `coffer call exec`, where the others are the command's own.
EXIT_DENIED=126

demo() {
    demo_create || return 1
    demo_look && demo_execute && demo_change && demo_record || return 1
    demo_end
}

demo_create() {
    title "A run: one hardened container, with a clone of this repository in it"
    type_out run create --profile "$DEMO_PROFILE" --agent alice --clone "$REPOSITORY"
    RUN=$(coffer run create --profile "$DEMO_PROFILE" --agent alice --clone "$REPOSITORY") || return 1
    note "the run: $RUN"
}

demo_look() {
    title "The agent looks around"
    shown 8 call list "$RUN" && shown 6 call read "$RUN" README.md --lines 1-6 &&
        shown 6 call grep "$RUN" "fn main" --glob '*.rs' -C 0 --max 4
}

demo_execute() {
    title "It runs a program: read-only ones run by themselves"
    shown 4 call exec "$RUN" -- wc -l README.md Cargo.toml || return 1
    title "… and what the policy forbids does not"
    refused call exec "$RUN" -- rm -rf .
}

demo_change() {
    local headline
    headline=$(head -n 1 "$REPOSITORY/README.md")
    title "It wants to edit a file: that waits for consent"
    with_consent 14 call edit "$RUN" README.md --old "$headline" --new "$headline (edited in a run)" || return 1
    title "The change, and a commit of it in the clone"
    shown 14 call git "$RUN" diff && with_consent 4 call git "$RUN" add README.md &&
        with_consent 6 call git "$RUN" commit -m "Say where this was edited" && shown 4 call git "$RUN" status
}

demo_record() {
    title "All of it is on record, and the record proves itself"
    shown 40 audit tail --run "$RUN" && shown 3 audit verify
}

demo_end() {
    title "The end of the run"
    shown 3 run stop "$RUN" && shown 3 run delete "$RUN" && RUN=''
}

# When the demonstration broke off: its container must not stay.
demo_abandon() {
    [[ -n ${RUN:-} ]] || return 0
    coffer run stop "$RUN" >/dev/null 2>&1 </dev/null || true
}

# shown LINES coffer-arguments…: the command as one would type it, and the first lines of what it says.
shown() {
    local lines=$1 status=0
    shift
    type_out "$@"
    coffer "$@" >"$DEMO/output" 2>&1 </dev/null || status=$?
    indent "$lines" <"$DEMO/output"
    if ((status)); then complain "  that ended with exit code $status"; fi
    return "$status"
}

# The same for a command that has to be denied.
refused() {
    local status=0
    type_out "$@"
    coffer "$@" >"$DEMO/output" 2>&1 </dev/null || status=$?
    indent 4 <"$DEMO/output"
    if ((status == EXIT_DENIED)); then return 0; fi
    complain "  this had to be denied, and ended with exit code $status"
    return 1
}

# The same for a call that may need consent: waits with it as an agent would, and gives the consent as its human would.
with_consent() {
    local lines=$1 status=0 call approval
    shift
    type_out "$@"
    coffer "$@" --wait >"$DEMO/waiting" 2>&1 </dev/null &
    call=$!
    while kill -0 "$call" 2>/dev/null; do
        approval=$(pending_approval)
        if [[ -n $approval ]]; then
            note "waiting for consent; its human reads what would happen:"
            shown 28 approval show "$approval" && shown 2 approval approve "$approval" --comment "fine" || return 1
        fi
        sleep 0.1
    done
    wait "$call" || status=$?
    indent "$lines" <"$DEMO/waiting"
    if ((status)); then complain "  that ended with exit code $status"; fi
    return "$status"
}

pending_approval() {
    coffer --output json approval list --run "$RUN" 2>/dev/null |
        sed -n 's/.*"approvalId": *"\([^"]*\)".*/\1/p' | head -n 1
}

# The command line, with the run's id as one would keep it.
type_out() {
    local word line=''
    for word in "$@"; do
        if [[ -n ${RUN:-} && $word == "$RUN" ]]; then
            # shellcheck disable=SC2016 # it is printed, not expanded
            word='$RUN'
        elif [[ -z $word || $word == *[^[:alnum:].,:/_=-]* ]]; then
            word="'$word'"
        fi
        line+=" $word"
    done
    printf '  %s$ coffer%s%s\n' "$SAY_BOLD" "$line" "$SAY_OFF" >&2
}

indent() {
    awk -v most="$1" 'NR <= most { print "    " $0 } END { if (NR > most) print "    … " NR - most " more lines" }' >&2
}
