#!/usr/bin/env bash
# Makes crates/wire/src/generated anew from the proto files, and notes of which sources it was made. The check compares
# digests, in a second; `tests/run.sh --long` makes the code again and compares it.
#
#   crates/wire/generate.sh           after a change of a proto file or of the generator
#   crates/wire/generate.sh --check   whether that was forgotten
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
NOTED=crates/wire/generated.sha256

digests() {
    find proto crates/wire/generate crates/wire/src/generated -type f -not -path '*/target/*' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum
}

case ${1:-} in
'')
    cargo run --quiet --locked --manifest-path crates/wire/generate/Cargo.toml --target-dir target/generate
    digests >"$NOTED"
    ;;
--check)
    if digests | diff "$NOTED" - >/dev/null; then exit 0; fi
    echo "The generated code, or what it is made from, has changed: run crates/wire/generate.sh and commit the result." >&2
    exit 1
    ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
