#!/usr/bin/env bash
# Records `coffer demo` in a terminal, and writes the recording as an animated picture for README.md and the book. Ids and times differ
# from one recording to the next, so make it again only when the demonstration changes. Needs root, a container engine and a
# static busybox, as `coffer demo` does, and `script` of util-linux.
#
#   deploy/record-demo.sh [COFFER [FILE]]
#
#   COFFER   the program, beside its cofferd; target/debug/coffer unless given
#   FILE     the picture; docs/src/images/demo.svg unless given
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
-h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
COFFER=$(realpath "${1:-$REPOSITORY/target/debug/coffer}")
FILE=${2:-$REPOSITORY/docs/src/images/demo.svg}

picture=$(mktemp)
trap 'rm -f "$picture"' EXIT
# A terminal wide enough that no line wraps: the renderer cuts lines itself.
TERM=xterm-256color script --quiet --return --command "stty cols 400 rows 50; '$COFFER' demo" /dev/null </dev/null |
    python3 "$REPOSITORY/deploy/demo_svg.py" >"$picture"
install -m 0644 "$picture" "$FILE"
printf '%s: %s bytes\n' "$FILE" "$(wc -c <"$FILE")"
