#!/usr/bin/env python3
"""Verifies run bundles: written from docs/src/audit-format.md alone, with Python's standard library and verify_log.py.

usage: verify_bundle.py [--key VKEY] FILE...     prints for each `intact RUN RECORDS` or `broken WHY`
"""
import hashlib, json, re, sys, tarfile  # noqa: E401
from verify_log import LINE, WRONG, b64, need, parse_key, sha, signed_lines
OWN = ["manifest.json", "seal.json", "checkpoint.txt", "key.txt", "proof.txt"]

def opened(line):
    match = LINE.fullmatch(line)
    need(match and len(line) < 65536 and sha(line[:-75], b"}").hex().encode() == match[4])
    return match[1].decode(), int(match[2]), bytes.fromhex(match[4].decode()), json.loads(line)
def root(start, end, leaves, proof):
    if not leaves:
        return proof.pop(0)
    if end - start == 1:
        return sha(b"\0", leaves[0][1])
    middle = start + (1 << (end - start - 1).bit_length() - 1)
    left, right = [[n for n in leaves if (n[0] <= middle) == side] for side in (True, False)]
    above = root(start, middle, left, proof)
    return sha(b"\1", above, root(middle, end, right, proof))
def verify(path, given):
    members = {}
    with tarfile.open(path, "r:") as archive:
        for entry in archive:
            need(entry.isreg() and re.fullmatch(r"[a-z0-9_-][a-z0-9._-]{0,95}", entry.name) and entry.name not in members)
            members[entry.name] = archive.extractfile(entry).read()
            need(len(members[entry.name]) == entry.size)
    need(list(members)[:5] == OWN)
    manifest, checkpoint = json.loads(members["manifest.json"]), members["checkpoint.txt"].decode()
    key = given or parse_key(members["key.txt"].decode().rstrip())
    origin, size, base64 = signed_lines(checkpoint, key)
    need(origin == key[0] == "cofferdam-audit/" + manifest["log"] and manifest["v"] == 1 and str(int(size)) == size)
    log, sequence, leaf, seal = opened(members["seal.json"])
    need((log, seal["kind"], seal["run_id"]) == (manifest["log"], "bundle_created", manifest["run_id"]))
    need(seal["details"]["manifest_sha256"] == hashlib.sha256(members["manifest.json"]).hexdigest())
    need(set(manifest["members"]) == set(members) - set(OWN))
    for name, said in manifest["members"].items():
        need(said == {"bytes": len(members[name]), "sha256": hashlib.sha256(members[name]).hexdigest()})
        if name.startswith("policy-") and name.endswith(".json"):
            need(name[7:-5] == sha(b"cofferdam policy 1\0", members[name]).hex())
    *lines, rest = members["records.jsonl"].split(b"\n")
    leaves = [record[1:3] for record in map(opened, lines)
              if need(record[0] == log and record[3]["run_id"] == manifest["run_id"]) is None] + [(sequence, leaf)]
    need(not rest and all(a[0] < b[0] for a, b in zip(leaves, leaves[1:])) and leaves[-1][0] <= int(size) and leaves[0][0] > 0)
    *proof, rest = members["proof.txt"].decode().split("\n")
    need(not rest and all(re.fullmatch("[0-9a-f]{64}", line) for line in proof))
    proof = [bytes.fromhex(line) for line in proof]
    need(root(0, int(size), leaves, proof) == b64(base64, 32) and not proof)
    return f"intact {manifest['run_id']} {len(leaves) - 1}"

if __name__ == "__main__":
    arguments, key = sys.argv[1:], None
    if arguments[:1] == ["--key"]:
        key, arguments = parse_key(arguments[1]), arguments[2:]
    for file in arguments:
        try:
            print(verify(file, key))
        except (*WRONG, tarfile.TarError) as wrong:
            print("broken", repr(wrong).replace("\n", " "))
