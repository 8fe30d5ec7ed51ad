#!/usr/bin/env bash
# TaskProlog of Slurm: tells each task of a job where its daemon listens. Runs as the user of the job; Slurm puts each line
# `export NAME=VALUE` of the output into the task's environment.
set -euo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin

# shellcheck source=settings.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/settings.sh"
read_settings
printf 'export COFFERDAM_ENDPOINT=%s\n' "${COFFERDAM_JOIN:-unix:$(socket_of "$SLURM_JOB_ID")}"
