#!/usr/bin/env bash
# Makes the messages and services of the API, src/proto and src/v1.ts, from the proto files. The tools have exact versions
# in package.json.
#
#   clients/typescript/generate.sh           after a change of a proto file
#   clients/typescript/generate.sh --check   whether that was forgotten
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

case ${1:-} in
'' | --check) ;;
*) usage >&2 && exit 2 ;;
esac

[[ -x node_modules/.bin/buf ]] || npm ci --ignore-scripts --no-audit --no-fund

# make INTO: all of it, beneath a directory.
make() {
    local file
    node_modules/.bin/buf generate --output "$1"
    {
        # shellcheck disable=SC2016 # the marks of Markdown
        printf '/** The messages and services of the API, `cofferdam.v1`. Generated from `proto/`, which says what each field means. */\n\n'
        for file in "$1"/src/proto/cofferdam/v1/*_pb.ts; do
            printf 'export * from "./proto/cofferdam/v1/%s.js";\n' "$(basename "$file" .ts)"
        done
    } >"$1/src/v1.ts"
}

WORKSHOP=$(mktemp -d)
trap 'rm -rf "$WORKSHOP"' EXIT
make "$WORKSHOP"
if [[ -z ${1:-} ]]; then
    # The old code goes when all of the new is there.
    rm -rf src/proto.new
    cp -r "$WORKSHOP/src/proto" src/proto.new
    rm -rf src/proto
    mv src/proto.new src/proto
    cp "$WORKSHOP/src/v1.ts" src/
    exit 0
fi
status=0
for part in proto v1.ts; do
    diff -r "src/$part" "$WORKSHOP/src/$part" >&2 || status=1
done
((status == 0)) || echo "The proto files have changed: run clients/typescript/generate.sh and commit the result." >&2
exit "$status"
