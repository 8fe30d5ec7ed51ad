"""Wishes of a task for a network, as rules that narrow the egress of its profile."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

import yaml

from cofferdam import AsyncClient, v1

Section = Mapping[str, Any]

#: Rules that leave a run without connections.
NOTHING: Section = {}


class HostNotAllowed(ValueError):
    """A host that the egress of the profile does not allow."""


async def egress_of(client: AsyncClient, profile: str) -> Section:
    """Returns the section `egress` of a profile; empty if it has none, or if there is no such profile."""
    policy = await client.policy.get_policy(v1.GetPolicyRequest())
    profiles = yaml.safe_load(policy.yaml)["profiles"]
    section: Section = (profiles.get(profile) or {}).get("egress") or NOTHING
    return section


def allows_every_name(section: Section) -> bool:
    return any(rule["host"] == "*" and rule["decision"] == "allow" for rule in section.get("rules", ()))


def only(section: Section, hosts: Sequence[str]) -> Section:
    """Returns rules for these hosts alone: names, `*.` and a name, addresses and networks.

    They have the ports, schemes and methods of the profile's rules. Raises `HostNotAllowed` for one that the profile does
    not allow, or not as a whole.
    """
    rules: list[Section] = []
    for host in hosts:
        found = list(_rules_for(section, host.lower().rstrip(".")))
        if not found:
            raise HostNotAllowed(f"{host} is not allowed")
        rules += found
    # With the profile's exceptions and bounds. A list without them would be stricter.
    return {**section, "default": "deny", "rules": rules}


def _rules_for(section: Section, host: str) -> Iterator[Section]:
    known = [rule for rule in section.get("rules", ()) if _contains(rule["host"], host)]
    denying = [rule for rule in known if rule["decision"] == "deny"]
    if any(rule.get("ports") is None for rule in denying):
        return
    denied = {port for rule in denying for port in rule["ports"]}
    ruled = denied.copy()
    for rule in known:
        ports = set(rule.get("ports") or ()) - denied
        if ports and rule["decision"] != "deny":
            ruled |= ports
            yield {**rule, "host": host, "ports": sorted(ports)}
    asked = set(section.get("ask_ports", ())) - ruled
    if section.get("default") == "ask" and asked and _network(host) is None:
        # The profile's list asks.
        yield {"host": host, "ports": sorted(asked), "scheme": "tcp", "decision": "allow"}


def _contains(pattern: str, host: str) -> bool:
    """Returns true if each host of `host` is one of `pattern`."""
    outer, inner = _network(pattern), _network(host)
    if isinstance(outer, IPv4Network) and isinstance(inner, IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(outer, IPv6Network) and isinstance(inner, IPv6Network):
        return inner.subnet_of(outer)
    if outer is not None or inner is not None:
        return False
    if pattern == "*":
        return True
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def _network(host: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(host)
    except ValueError:
        return None
