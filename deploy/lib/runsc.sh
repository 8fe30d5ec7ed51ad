# shellcheck shell=bash
# gVisor as a runtime of the engine that answers, under the name `runsc`, which a profile gives as `runtime: runsc`. Needs
# say.sh, packages.sh and engine.sh.

RUNSC_CONFIG=${RUNSC_CONFIG:-/etc/docker/daemon.json}
RUNSC_ENGINE_PID=${RUNSC_ENGINE_PID:-/var/run/docker.pid}
# ptrace needs nothing of the host. kvm is quicker where it works; it does not in most virtual machines.
RUNSC_PLATFORM=${RUNSC_PLATFORM:-ptrace}

engine_has_runsc() {
    # shellcheck disable=SC2016 # a template of the engine's
    engine info --format '{{range $name, $_ := .Runtimes}}{{println $name}}{{end}}' 2>/dev/null | grep -qx runsc
}

# Cgroups are never ignored: the limits of a run are those of its sandbox.
runsc_registration() {
    python3 - "$RUNSC_CONFIG" "$(command -v runsc)" "$RUNSC_PLATFORM" <<'PYTHON'
import json, os, sys

path, program, platform = sys.argv[1:]
config = {}
if os.path.exists(path):
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
arguments = [f"--platform={platform}", "--network=none"]
config.setdefault("runtimes", {})["runsc"] = {"path": program, "runtimeArgs": arguments}
json.dump(config, sys.stdout, indent=2)
print()
PYTHON
}

# A dockerd that runs reads its runtimes again at SIGHUP: no container ends.
reload_engine() {
    if systemd_runs && [[ $RUNSC_ENGINE_PID == /var/run/docker.pid ]]; then
        as_root systemctl reload docker
    else
        as_root kill -HUP "$(as_root cat "$RUNSC_ENGINE_PID")"
    fi
}

register_runsc() {
    local wanted deadline
    wanted=$(mktemp) || return 1
    if ! runsc_registration >"$wanted"; then
        rm -f "$wanted"
        printf '%s could not be read; add the runtime runsc to it by hand\n' "$RUNSC_CONFIG"
        return 1
    fi
    as_root install -D -m 0644 "$wanted" "$RUNSC_CONFIG" && rm -f "$wanted" && reload_engine || return 1
    deadline=$((SECONDS + ENGINE_PATIENCE))
    until engine_has_runsc; do
        if ((SECONDS >= deadline)); then
            printf 'the engine does not know runsc %d seconds after it was told to read %s\n' "$ENGINE_PATIENCE" "$RUNSC_CONFIG"
            return 1
        fi
        sleep 0.3
    done
}

# The one function that others call. The engine answers.
ensure_runsc() {
    if engine_has_runsc; then return 0; fi
    need_root "register gVisor with the Docker Engine"
    if ! command -v runsc >/dev/null; then install_packages "gVisor" runsc || return 1; fi
    command -v python3 >/dev/null || install_packages "Reading the engine's configuration" python3-minimal || return 1
    step "Registering gVisor with the Docker Engine" register_runsc
}
