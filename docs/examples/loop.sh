#!/usr/bin/env bash
# Repairs a program in a clone of a repository, and exports the change.
#
# loop.sh [REPOSITORY]
set -euo pipefail

repository=${1:-$HOME/src/area}
socket=${COFFERDAM_ENDPOINT:-unix:/run/cofferdam/cofferd.sock}
socket=${socket#unix:}
# shellcheck disable=SC2016 # the program's own variables
program='area() { echo $(($1 * $2)); }\n'

# api METHOD JSON: the answer, as JSON.
api() { grpcurl -plaintext -unix -d "$2" "$socket" "cofferdam.v1.$1"; }
# call OPERATION: the answer of one call in the run.
call() { api ToolService/Call "{\"runId\":\"$run\",\"operation\":$1}"; }
# field NAME: the value of a field in the JSON on standard input.
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p"; }

run=$(api RunService/CreateRun '{"profile":"open","agentId":"repairer","workspace":{"clone":{"repository":"'"$repository"'"}}}' |
    field runId | head -n 1)

echo "before: $(call '{"exec":{"command":"sh","args":["test.sh"]}}' | field exitCode)"
call '{"write":{"path":"area.sh","content":"'"$program"'"}}' >/dev/null
echo "after: $(call '{"exec":{"command":"sh","args":["test.sh"]}}' | field exitCode)"
if ! refusal=$(call '{"exec":{"command":"rm","args":["-rf","."]}}' 2>&1); then
    echo "refused: $(sed -n 's/.*"reason":"\([A-Z_]*\)".*/\1/p' <<<"$refusal")"
fi
api AuditService/StreamEvents '{"filter":{"runId":"'"$run"'","kinds":["call_receipt"]}}' | field operation
coffer call git "$run" diff >change.diff
api RunService/StopRun "{\"runId\":\"$run\"}" >/dev/null
