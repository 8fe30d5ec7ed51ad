#!/usr/bin/env python3
"""Verifies audit logs: written from docs/src/audit-format.md alone, with nothing but Python's standard library.

usage: verify_log.py [--key VKEY]... DIR...   prints for each DIR `intact LAST CHECKPOINTS`, `unvouched LAST` or `broken FIRST_BAD`
"""
import base64, contextlib, hashlib, json, os, re, sys, zlib  # noqa: E401
LINE = re.compile(rb'\{"v":1,"log":"([0-9a-f]{32})","sequence":([1-9]\d{0,19}),"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z",'
                  rb'"previous":"([0-9a-f]{64})","kind":".*,"hash":"([0-9a-f]{64})"\}', re.DOTALL)
WRONG = (ValueError, KeyError, TypeError, IndexError, AttributeError, zlib.error)
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, ROOT = -121665 * pow(121666, -1, P) % P, pow(2, (P - 1) // 4, P)

class Broken(Exception):
    """The first record that does not hold."""
def need(good):
    if not good:
        raise ValueError("something does not hold")
def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()
def add(p, q):  # RFC 8032, 5.1.4
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    return (b - a) * (d - c) % P, (d + c) * (b + a) % P, (d - c) * (d + c) % P, (b - a) * (b + a) % P
def times(n, p, q=(0, 1, 1, 0)):
    while n:
        q, p, n = add(q, p) if n & 1 else q, add(p, p), n >> 1
    return q
def point(raw):
    y, sign = int.from_bytes(raw, "little") & (2**255 - 1), raw[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if (x * x - square) % P == 0 else x * ROOT % P
    need(y < P and (x * x - square) % P == 0)
    x = x if x & 1 == sign else P - x
    return x, y, 1, x * y % P
def verifies(key, text, signature):  # Ed25519
    s = int.from_bytes(signature[32:], "little")
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % L
    a, b = times(s, point(b"\x58" + b"\x66" * 31)), add(point(signature[:32]), times(h, point(key)))
    return s < L and (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0
def b64(text, length):
    raw = base64.b64decode(text, validate=True)
    need(base64.b64encode(raw).decode() == text and len(raw) == length)
    return raw
def parse_key(text):
    name, key_id, raw = text.split("+", 2)
    need(b64(raw, 33)[0] == 1 and sha(name.encode(), b"\n", b64(raw, 33))[:4].hex() == key_id)
    return name, key_id, b64(raw, 33)[1:]
def signed_lines(note, key):  # the lines of a note, when this key has signed it
    text, _, signatures = note.rpartition("\n\n")
    need(signatures[-1] == "\n" and not re.search("[\0-\x09\x0b-\x1f]", note))
    parts = [re.fullmatch("— ([^ ]+) ([^ ]+)", line).groups() for line in signatures[:-1].split("\n")]
    mine = [b64(raw, 68)[4:] for name, raw in parts if (name, base64.b64decode(raw)[:4].hex()) == key[:2]]
    need(mine and all(verifies(key[2], (text + "\n").encode(), signature) for signature in mine))
    return text.split("\n")

class Log:
    def __init__(self, directory, given):
        self.dir, self.given, self.key, self.named, self.count, self.covered = directory, given, None, False, 0, 0
        self.next, self.id, self.origin, self.previous, self.peaks = 1, None, "", None, []
        self.start, self.removal = 0, (0, "")  # the last record that was removed, and the record that says so
    def files(self, pattern, sub=""):
        path = os.path.join(self.dir, sub)
        return {n: os.path.join(path, n) for n in (os.listdir(path) if os.path.isdir(path) else []) if re.fullmatch(pattern, n)}
    def root(self, nodes):
        return nodes[0] if len(nodes) == 1 else self.root([*nodes[:-2], sha(b"\1", *nodes[-2:])])
    def introduce(self, entry):
        key, trusted = parse_key(entry["key"]), not self.given and not self.named
        need(key[0] == self.origin)
        with contextlib.suppress(WRONG):
            trusted |= signed_lines(entry["note"], self.key) == [self.origin, "next key", entry["key"]]
        self.key, self.named = key if trusted or key in self.given else None, True
    def claimed(self, note, size):  # the root in a checkpoint of this size, if it is one
        try:
            lines = signed_lines(note.decode(), self.key)
            need(lines[:2] == [self.origin, str(size)] and "" not in lines)
            return b64(lines[2], 32)
        except WRONG:
            return None
    def compare(self, note, size, blamed):
        if (root := self.claimed(note, size)) != self.root([node for _, node in self.peaks]):
            raise Broken(blamed if root is None else max(self.covered, self.start) + 1)
        self.count, self.covered = self.count + (size > self.covered), max(size, self.covered)
    def meet(self, size):
        for path in self.files(f"{size:020}.txt", "checkpoints").values():
            self.compare(open(path, "rb").read(), size, size)
    def opened(self, line):
        match = LINE.fullmatch(line)
        need(match and len(line) < 65536 and sha(line[:-75], b"}").hex().encode() == match[4])
        return match[1].decode(), int(match[2]), match[3].decode(), match[4].decode(), json.loads(line)
    def record(self, line):
        log, sequence, previous, own, event = self.opened(line)
        expected = self.previous or sha(f"cofferdam audit log v1\n{log}\n".encode()).hex()
        need((log, sequence, previous) == (self.id or log, self.next, expected))
        self.id, self.origin = log, "cofferdam-audit/" + log
        if event["kind"] == "checkpoint":
            self.compare(event["details"]["note"].encode(), sequence - 1, sequence)
        if event["kind"] == "audit_key":
            self.introduce(event["details"])
        if self.removal[0] == sequence and self.removal[1] != own:
            raise Broken(max(self.covered, self.start) + 1)
        level, node = 0, sha(b"\0", bytes.fromhex(own))  # RFC 6962: the roots of whole subtrees, the largest first
        while self.peaks and self.peaks[-1][0] == level:
            level, node = level + 1, sha(b"\1", self.peaks.pop()[1], node)
        self.peaks.append((level, node))
        self.next, self.previous = sequence + 1, own
        self.meet(sequence)
    def begin(self, file):  # behind what was removed
        log, sequence, _, own, event = self.opened(file[:-1])
        d, self.id, self.origin, self.removal = event["details"], log, "cofferdam-audit/" + log, (sequence, own)
        need(event["kind"] == "segments_removed" and d["log"] == log and file[-1:] == b"\n" and 0 < d["last_sequence"] < sequence)
        levels = [level for level in range(63, -1, -1) if d["last_sequence"] >> level & 1]
        self.peaks = list(zip(levels, map(bytes.fromhex, d["peaks"]), strict=True))
        self.start, self.previous, self.next = d["last_sequence"], d["last_hash"], d["last_sequence"] + 1
        [self.introduce(entry) for entry in d["keys"]]
        self.meet(self.start)
    def segment(self, first, path):
        need(first == self.next)
        data = open(path, "rb").read()
        if path.endswith(".gz"):
            unpack, packed = zlib.decompressobj(31), data
            data = unpack.decompress(packed)
            need(packed[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff" and unpack.eof and not unpack.unused_data)
        *lines, rest = data.split(b"\n")
        [self.record(line) for line in lines]
        need(not rest)
    def verify(self):
        try:
            [self.begin(open(path, "rb").read()) for path in self.files("removed").values()]
            segments = {n[:20]: p for n, p in sorted(self.files(r"\d{20}\.jsonl(\.gz)?").items(), reverse=True)}
            [self.segment(int(n), segments[n]) for n in sorted(segments) if int(n) > self.start]
            need(self.removal[0] < self.next)
        except WRONG:
            raise Broken(self.next) from None
        for name, path in sorted(self.files(r"\d{20}\.txt", "checkpoints").items()):
            if int(name[:20]) >= self.next:
                raise Broken(self.next if self.claimed(open(path, "rb").read(), int(name[:20])) else int(name[:20]))
        return f"intact {self.next - 1} {self.count}" if self.count else f"unvouched {self.next - 1}"

if __name__ == "__main__":
    arguments, keys, unvouched = sys.argv[1:], [], False
    while arguments[:1] == ["--key"]:
        keys, arguments = keys + [parse_key(arguments[1])], arguments[2:]
    for path in arguments:
        try:
            print(verdict := Log(path, keys).verify())
            unvouched |= verdict.startswith("unvouched")
        except Broken as broken:
            print("broken", broken.args[0])
    sys.exit(6 if keys and unvouched else 0)  # whoever gives a key expects its signatures
