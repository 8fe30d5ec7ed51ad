#!/usr/bin/env bash
# Checks the files of deploy/kubernetes by the JSON schemas of Kubernetes' API, those of the oldest and the newest version that the page
# names: no field that the API does not know, none of another type. Then breaks each file, and sees that the check fails. No cluster is needed.
#
#   tests/fleet/kubernetes.sh
set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$REPOSITORY"
mkdir -p target
LOG_FILE=${LOG_FILE:-$REPOSITORY/target/kubernetes.log}
for part in say packages toolchain tools; do
    # shellcheck source=/dev/null
    source "$REPOSITORY/deploy/lib/$part.sh"
done
KUBERNETES=$TOOLS/kubernetes
VERSIONS=(1.30 1.37)
FILES=(deploy/kubernetes/*.yaml)

case ${1:-} in
-h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

validate() { "$KUBERNETES/bin/kubernetes-validate" --strict --kubernetes-version "$1" --quiet "${@:2}"; }

# fails_with FILE WORDS REPLACEMENT: the file with the words replaced is no longer valid, in any version.
fails_with() {
    local version broken=$SCRATCH/broken.yaml
    sed "s/$2/$3/" "$1" >"$broken"
    if cmp -s "$1" "$broken"; then die "$1 has no \"$2\""; fi
    for version in "${VERSIONS[@]}"; do
        if validate "$version" "$broken" >/dev/null 2>&1; then die "$1 with \"$3\" is valid for Kubernetes $version, and must not be"; fi
    done
}

# What the schema does not say: the pod's label is the selector's, and the service's port and mounts are of names that the pod has.
names_agree() {
    "$KUBERNETES/bin/python" - "${FILES[@]}" <<'END'
import sys
from pathlib import Path

import yaml

documents = [document for file in sys.argv[1:] for document in yaml.safe_load_all(Path(file).read_text())]
of = {document["kind"]: document for document in documents}
template = of["DaemonSet"]["spec"]["template"]
(container,) = template["spec"]["containers"]
labels = template["metadata"]["labels"]
assert of["DaemonSet"]["spec"]["selector"]["matchLabels"] == labels == of["Service"]["spec"]["selector"]
assert {document["metadata"].get("namespace", "cofferdam") for document in documents} == {"cofferdam"}
assert {port["targetPort"] for port in of["Service"]["spec"]["ports"]} <= {port["name"] for port in container["ports"]}
volumes = [volume["name"] for volume in template["spec"]["volumes"]]
assert sorted(mount["name"] for mount in container["volumeMounts"]) == sorted(volumes)
paths = {volume["name"]: volume["hostPath"]["path"] for volume in template["spec"]["volumes"] if "hostPath" in volume}
assert all(mount["mountPath"] == paths[mount["name"]] for mount in container["volumeMounts"] if mount["name"] in ("state", "layers", "cgroups"))
# Kubernetes refuses this otherwise, which no schema says.
assert container["securityContext"]["privileged"]
drain = template["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
assert drain[:3] == ["coffer", "node", "drain"]
END
}

ensure_packages "the schemas of Kubernetes" "$KUBERNETES" "$REPOSITORY/tests/fleet/requirements-kubernetes.txt" || exit 1
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
for version in "${VERSIONS[@]}"; do
    validate "$version" "${FILES[@]}"
done
fails_with deploy/kubernetes/daemonset.yaml 'hostPID: true' 'hostPid: true'
fails_with deploy/kubernetes/daemonset.yaml 'periodSeconds: 10' 'periodSeconds: often'
fails_with deploy/kubernetes/daemonset.yaml 'mountPropagation: Bidirectional' 'propagation: Bidirectional'
fails_with deploy/kubernetes/service.yaml 'clusterIP: None' 'clusterIp: None'
fails_with deploy/kubernetes/service.yaml 'port: 7443' 'port: api'
names_agree
