#!/usr/bin/env bash
# Makes sure that a Docker Engine answers on this machine; installs and starts one if none does. Can be run again at
# any time: when the engine answers there is nothing to do.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=deploy/lib/say.sh
source "$here/lib/say.sh"
# shellcheck source=deploy/lib/packages.sh
source "$here/lib/packages.sh"
# shellcheck source=deploy/lib/engine.sh
source "$here/lib/engine.sh"

ensure_engine || die "No Docker Engine could be started; the lines above say why."
say "$(engine_summary)"
