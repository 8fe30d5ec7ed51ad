# shellcheck shell=bash
# How our scripts talk: a calm line for each step, everything noisy into a log file, and the end of that log when a
# step fails. Talk goes to stderr, so that a script's stdout stays free for data. With COFFERDAM_FAILURES, a directory, each
# failure is also a file there, for a caller who shows all of them at its end.

if [[ -t 2 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
    SAY_BOLD=$'\e[1m' SAY_DIM=$'\e[2m' SAY_GREEN=$'\e[32m' SAY_RED=$'\e[31m' SAY_OFF=$'\e[0m'
    SAY_LIVE=1
else
    SAY_BOLD='' SAY_DIM='' SAY_GREEN='' SAY_RED='' SAY_OFF=''
    SAY_LIVE=''
fi

say() { printf '%s\n' "$*" >&2; }
title() { printf '\n%s%s%s\n' "$SAY_BOLD" "$*" "$SAY_OFF" >&2; }
note() { printf '  %s%s%s\n' "$SAY_DIM" "$*" "$SAY_OFF" >&2; }
complain() { printf '%s%s%s\n' "$SAY_RED" "$*" "$SAY_OFF" >&2; }
die() {
    complain "$*"
    keep_failure "$*" </dev/null
    exit 1
}

# keep_failure WHAT <LINES: for show_failures.
keep_failure() {
    local file
    [[ -d ${COFFERDAM_FAILURES:-} ]] || return 0
    # In the order of time.
    file=$(mktemp "$COFFERDAM_FAILURES/$(date +%s%N).XXXXXX") && { printf '%s\n' "$1" && tail -n 25; } >"$file"
}

# The failures that were kept, of which the first dozen share sixty lines: what prints the last hundred alone has all of this.
show_failures() {
    local files=("$COFFERDAM_FAILURES"/*) file shown lines=25
    [[ -e ${files[0]} ]] || return 0
    shown=("${files[@]:0:12}")
    ((lines * ${#shown[@]} <= 60)) || lines=$((60 / ${#shown[@]}))
    for file in "${shown[@]}"; do
        printf '  %s✗ %s%s\n' "$SAY_RED" "$(head -n 1 "$file")" "$SAY_OFF" >&2
        tail -n +2 "$file" | tail -n "$lines" | cut -c 1-400 | sed 's/^/    │ /' >&2
    done
    ((${#files[@]} <= ${#shown[@]})) || note "and $((${#files[@]} - ${#shown[@]})) more, in $COFFERDAM_FAILURES"
}

# again COMMAND…: what fetches something, because networks fail for a moment: three times at most.
again() {
    local pause
    for pause in 5 20; do
        "$@" && return 0
        printf 'That has failed. Once more in %d s.\n' "$pause"
        sleep "$pause"
    done
    "$@"
}

# Where the output of quiet steps goes. Callers may set LOG_FILE before they source this.
log_file() {
    if [[ -z ${LOG_FILE:-} ]]; then
        LOG_FILE=$(mktemp "${TMPDIR:-/tmp}/cofferdam.XXXXXX.log")
    fi
    printf '%s' "$LOG_FILE"
}

# How long something took, as people say it: 4 s, 3 min 20 s.
duration() {
    if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %d s' $(($1 / 60)) $(($1 % 60)); fi
}

# step "What it does" command args…   One line: runs the command with its output in the log; on failure shows the
# end of that output and returns the command's status.
step() {
    local what=$1 began=$SECONDS status=0 log from ticker=''
    shift
    log_file >/dev/null
    log=$LOG_FILE
    printf '\n==== %s: %s\n' "$what" "$*" >>"$log"
    from=$(($(wc -c <"$log") + 1))
    if [[ -n $SAY_LIVE ]]; then
        show_progress "$what" "$log" &
        ticker=$!
    fi
    # A step within it is part of its output, and is not kept once more.
    COFFERDAM_FAILURES='' "$@" >>"$log" 2>&1 </dev/null || status=$?
    if [[ -n $ticker ]]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        printf '\r\e[K' >&2
    fi
    if ((status == 0)); then
        printf '  %s✓%s %s %s(%s)%s\n' "$SAY_GREEN" "$SAY_OFF" "$what" "$SAY_DIM" "$(duration $((SECONDS - began)))" "$SAY_OFF" >&2
    else
        printf '  %s✗ %s%s %s(%s)%s\n' "$SAY_RED" "$what" "$SAY_OFF" "$SAY_DIM" "$(duration $((SECONDS - began)))" "$SAY_OFF" >&2
        tail -c "+$from" "$log" | tail -n 25 | sed 's/^/    │ /' >&2
        note "the whole log: $log"
        tail -c "+$from" "$log" | keep_failure "$what" || true
    fi
    return "$status"
}

# On a terminal only: what runs, for how long, and the last line that it logged.
show_progress() {
    local what=$1 log=$2 began=$SECONDS room last
    while :; do
        room=$((${COLUMNS:-80} - ${#what} - 16))
        last=$(tail -n 1 "$log" 2>/dev/null | tr -cd '[:print:]' | sed 's/^ *//')
        printf '\r\e[K  … %s (%s)%s' "$what" "$(duration $((SECONDS - began)))" "$SAY_DIM" >&2
        if ((room > 8)); then printf ' %.*s' "$room" "$last" >&2; fi
        printf '%s' "$SAY_OFF" >&2
        sleep 0.5
    done
}
