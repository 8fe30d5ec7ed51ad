#!/usr/bin/env bash
# Makes the generated code of this package: the messages of the API (src/cofferdam/_proto), one method for each method of
# the API (src/cofferdam/_async/rpc.py, src/cofferdam/v1.py), and the blocking half (src/cofferdam/_sync) from the
# asynchronous one. The tools have exact versions in tools/requirements.txt. The generator of messages is an old one on
# purpose: its code works with every protobuf since 4.25, that of a newer one only with its own version or the next.
#
#   clients/python/generate.sh           after a change of a proto file or of src/cofferdam/_async
#   clients/python/generate.sh --check   whether that was forgotten
#
# GENERATE_PYTHON=PROGRAM   a Python with these tools; unless given, one is set up in target/tools/generate
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
REPOSITORY=$(cd ../.. && pwd)
# shellcheck source=/dev/null
source "$REPOSITORY/deploy/lib/say.sh"

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

ensure_tools() {
    local place=$REPOSITORY/target/tools/generate
    [[ -z ${GENERATE_PYTHON-} ]] || return 0
    GENERATE_PYTHON=$place/bin/python
    if cmp -s tools/requirements.txt "$place/requirements.txt"; then return 0; fi
    rm -rf "$place"
    python3 -m venv "$place"
    again "$place/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r tools/requirements.txt
    cp tools/requirements.txt "$place/requirements.txt"
}

# make INTO: all of it, beneath a directory that has the asynchronous half.
make() {
    local bin
    bin=$(dirname "$GENERATE_PYTHON")
    mkdir -p "$1/_proto" "$1/_sync"
    PATH=$bin:$PATH "$GENERATE_PYTHON" -m grpc_tools.protoc -I "$REPOSITORY/proto" --include_source_info \
        --descriptor_set_out "$WORKSHOP/api.bin" --python_out "$WORKSHOP" --mypy_out "quiet:$WORKSHOP" \
        "$REPOSITORY"/proto/cofferdam/v1/*.proto
    cp "$WORKSHOP"/cofferdam/v1/*_pb2.py "$WORKSHOP"/cofferdam/v1/*_pb2.pyi "$1/_proto/"
    # The package is cofferdam.v1 in the API and cofferdam._proto here.
    sed -i -E 's/from cofferdam\.v1 import/from cofferdam._proto import/; s/cofferdam\.v1\.([a-z_]+_pb2)/cofferdam._proto.\1/g' \
        "$1"/_proto/*
    printf '"""The messages of the API, generated from the proto files. Import them from cofferdam.v1."""\n' >"$1/_proto/__init__.py"
    "$GENERATE_PYTHON" tools/rpc.py "$WORKSHOP/api.bin" "$1"
    "$GENERATE_PYTHON" tools/unasync.py "$1/_async" "$1/_sync"
    "$bin/ruff" format --quiet --config pyproject.toml "$1/_sync" "$1/_async/rpc.py" "$1/v1.py"
    "$bin/ruff" check --quiet --config pyproject.toml --select I --fix "$1/_sync" "$1/_async/rpc.py" "$1/v1.py"
}

case ${1:-} in
'' | --check) ;;
*) usage >&2 && exit 2 ;;
esac

ensure_tools
WORKSHOP=$(mktemp -d)
trap 'rm -rf "$WORKSHOP"' EXIT
MADE=$WORKSHOP/package
mkdir "$MADE"
cp -r src/cofferdam/_async src/cofferdam/_sync "$MADE/"
make "$MADE"
if [[ -z ${1:-} ]]; then
    # The old code goes when all of the new is there.
    rm -rf src/cofferdam/_proto.new
    cp -r "$MADE/_proto" src/cofferdam/_proto.new
    rm -rf src/cofferdam/_proto
    mv src/cofferdam/_proto.new src/cofferdam/_proto
    cp "$MADE/_async/rpc.py" src/cofferdam/_async/
    cp "$MADE/_sync"/*.py src/cofferdam/_sync/
    cp "$MADE/v1.py" src/cofferdam/
    exit 0
fi
status=0
for part in _proto _async _sync v1.py; do
    diff -r --exclude=__pycache__ "src/cofferdam/$part" "$MADE/$part" >&2 || status=1
done
((status == 0)) || echo "The generated code or its sources have changed: run clients/python/generate.sh and commit the result." >&2
exit "$status"
