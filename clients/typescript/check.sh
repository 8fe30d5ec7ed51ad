#!/usr/bin/env bash
# Checks style, types, and whether the generated code is up to date. Fetches its tools from npm's registry, once.
#
#   clients/typescript/check.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=/dev/null
source ../../deploy/lib/say.sh

[[ ${1-} != --help ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 0; }

[[ -x node_modules/.bin/biome ]] || again npm ci --ignore-scripts --no-audit --no-fund
node_modules/.bin/biome check .
node_modules/.bin/tsc --noEmit
./generate.sh --check
