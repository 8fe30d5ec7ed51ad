#!/usr/bin/env python3
"""Verifies the hash chain of an audit log: verify_log.py DIRECTORY

Exits with 1, and names the first bad record, if the chain is broken. Needs Python's standard library alone.
"""
import gzip, hashlib, json, pathlib, re, sys, zlib  # noqa: E401

LINE = re.compile(rb'\{"v":1,"log":"([0-9a-f]{32})","sequence":([1-9][0-9]{0,19}),"time":"[0-9TZ:.-]{30}",'
                  rb'"previous":"([0-9a-f]{64})","kind":".*,"hash":"([0-9a-f]{64})"\}', re.DOTALL)


def need(holds, problem):
    if not holds:
        raise ValueError(problem)


def parse(line):
    """Returns log, sequence, previous hash, hash and content of a line whose hash is true."""
    parts = LINE.fullmatch(line)
    need(parts and len(line) < 65536, "the line is no record")
    need(hashlib.sha256(line[:-75] + b"}").hexdigest().encode() == parts[4], "the content does not have its hash")
    return parts[1].decode(), int(parts[2]), parts[3].decode(), parts[4].decode(), json.loads(line)


class Chain:
    log, last, head, removal = None, 0, None, (0, None)

    def accept(self, line):
        log, sequence, previous, own, _ = parse(line)
        genesis = hashlib.sha256(f"cofferdam audit log v1\n{log}\n".encode()).hexdigest()
        need((self.log or log, self.last + 1) == (log, sequence), "it is not the next record of this log")
        need((self.head or genesis) == previous, "the record before it has another hash")
        need(sequence != self.removal[0] or own == self.removal[1], "the file `removed` has another record")
        self.log, self.last, self.head = log, sequence, own

    def verify(self, directory):
        if (removed := directory / "removed").exists():  # old segments are gone: it says where the rest begins
            self.log, sequence, _, own, record = parse(removed.read_bytes().removesuffix(b"\n"))
            need(record["kind"] == "segments_removed", "the file `removed` holds another kind of record")
            self.last, self.head = record["details"]["last_sequence"], record["details"]["last_hash"]
            self.removal = (sequence, own)  # it has to come in the rest
        names = sorted(directory.glob("*.jsonl.gz")) + sorted(directory.glob("*.jsonl"))
        need(names, "the directory has no log")
        segments = {int(file.name[:20]): file for file in names}  # a plain file counts before a compressed one
        for first, file in sorted((first, file) for first, file in segments.items() if first > self.last):
            need(first == self.last + 1, f"the segment before {file.name} is missing")
            *lines, rest = (gzip.open(file) if file.suffix == ".gz" else file.open("rb")).read().split(b"\n")
            for line in lines:
                self.accept(line)
            need(not rest, "the last line has no end")
        need(self.last >= self.removal[0], "the end of the log is missing")


if __name__ == "__main__":
    chain = Chain()
    try:
        chain.verify(pathlib.Path(sys.argv[1]))
    except (ValueError, KeyError, TypeError, OSError, EOFError, zlib.error) as problem:
        sys.exit(f"broken: record {chain.last + 1}: {problem}")
    print(f"intact: {chain.last} records, head {chain.head}")
