#!/usr/bin/env bash
# Checks style, types, and whether the generated code is up to date. Fetches its tools from PyPI, once.
#
#   clients/python/check.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=/dev/null
source ../../deploy/lib/say.sh
PLACE=$(cd ../.. && pwd)/target/tools/python-sdk
WANTED=tools/requirements-check.txt

[[ ${1-} != --help ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0; }

if ! cmp -s "$WANTED" "$PLACE/requirements.txt"; then
    rm -rf "$PLACE"
    python3 -m venv "$PLACE"
    again "$PLACE/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$WANTED"
    cp "$WANTED" "$PLACE/requirements.txt"
fi
"$PLACE/bin/ruff" check --no-cache --config pyproject.toml . ../../examples ../../docs ../../deploy ../../tests/console
"$PLACE/bin/ruff" format --no-cache --check --quiet --config pyproject.toml . ../../examples ../../docs ../../deploy ../../tests/console
"$PLACE/bin/mypy" --cache-dir "$PLACE/mypy"
./generate.sh --check
