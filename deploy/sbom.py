"""Prints the SBOM of cofferd and coffer: CycloneDX 1.5, from `cargo metadata` on standard input.

    cargo metadata --locked --format-version 1 | python3 deploy/sbom.py Cargo.lock EPOCH

The static programs that cofferd embeds are roots, too, although Cargo knows no arrow to them. Dependencies of tests are
left out. The same lock file gives the same bytes.
"""

import json
import re
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOTS = ["cofferd", "coffer", "cofferdam-guest", "cofferdam-host-worker", "cofferdam-egress-worker"]


def checksums(lock: str) -> dict[tuple[str, str], str]:
    """Returns the SHA-256 of each crate's archive, by name and version."""
    found = {}
    for package in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|checksum) = "(.*)"$', package, re.MULTILINE))
        if "checksum" in fields:
            found[fields["name"], fields["version"]] = fields["checksum"]
    return found


def reached(nodes: dict[str, Any], roots: list[str]) -> dict[str, list[str]]:
    """Returns each package that the roots are built with, and what it depends on."""
    found: dict[str, list[str]] = {}
    ahead = list(roots)
    while ahead:
        package = ahead.pop()
        if package in found:
            continue
        uses = nodes[package]["deps"]
        found[package] = sorted({use["pkg"] for use in uses if any(kind["kind"] != "dev" for kind in use["dep_kinds"])})
        ahead.extend(found[package])
    return found


def reference(package: dict[str, Any]) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict[str, Any], sums: dict[tuple[str, str], str], root: bool) -> dict[str, Any]:
    name, version = package["name"], package["version"]
    described: dict[str, Any] = {
        "type": "application" if root else "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "purl": reference(package),
    }
    if package["license"]:
        # Some manifests still have the older form, with a slash.
        described["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    if (name, version) in sums:
        described["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    return described


def bill(metadata: dict[str, Any], sums: dict[tuple[str, str], str], epoch: int) -> dict[str, Any]:
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = set(metadata["workspace_members"])
    roots = [name for name in packages if name in members and packages[name]["name"] in ROOTS]
    if len(roots) != len(ROOTS):
        sys.exit(f"sbom.py: the workspace does not have all of {', '.join(ROOTS)}: correct the list in deploy/sbom.py")
    uses = reached(nodes, roots)
    ordered = sorted(uses, key=lambda id: (packages[id]["name"], packages[id]["version"]))
    version = next(packages[id]["version"] for id in roots)
    whole = {"type": "application", "bom-ref": "cofferdam", "name": "cofferdam", "version": version}
    arrows = [{"ref": "cofferdam", "dependsOn": sorted(reference(packages[id]) for id in roots)}]
    arrows += [
        {"ref": reference(packages[id]), "dependsOn": [reference(packages[use]) for use in uses[id]]} for id in ordered
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": whole,
        },
        "components": [component(packages[id], sums, id in roots) for id in ordered],
        "dependencies": arrows,
    }


if __name__ == "__main__":
    lock, epoch = sys.argv[1:]
    json.dump(bill(json.load(sys.stdin), checksums(Path(lock).read_text()), int(epoch)), sys.stdout, indent=1)
    print()
