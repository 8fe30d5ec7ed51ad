"""Makes the blocking half of the package from the asynchronous one, token by token.

Usage: unasync.py FROM TO, two directories. `transport.py`, `forward.py` and `mailbox.py` are written by hand on both sides:
they are where these differ.
"""

import io
import re
import sys
import tokenize
from pathlib import Path

BY_HAND = {"forward.py", "mailbox.py", "transport.py"}
NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aclosing": "closing",
    "anext": "next",
    "AsyncGenerator": "Generator",
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "AsyncDataCallback": "DataCallback",
    "AsyncNodeCallback": "NodeCallback",
    "AsyncOutputCallback": "OutputCallback",
    "AsyncProgressCallback": "ProgressCallback",
    "StopAsyncIteration": "StopIteration",
    "_async": "_sync",
}
DROPPED = {"async", "await"}
OURS = re.compile(r"\bAsync(?=(Client|Sandbox|CommandHandle|Forks|Session|Watch|Fleet)\b)")
# In docstrings: examples and names.
WORDS = re.compile(r"\b(async|await) (?=\w)")
NOTICE = "# Generated from the asynchronous half by tools/unasync.py: change that half.\n"


def blocking(source: str) -> str:
    tokens = iter(tokenize.generate_tokens(io.StringIO(source).readline))
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []
    for token in tokens:
        (row, start), (last, end) = token.start, token.end
        text = token.string
        if token.type == tokenize.NAME:
            if text in DROPPED:
                # The blank after it, too.
                edits.append((row, start, end + 1, ""))
                continue
            new = NAMES.get(text) or OURS.sub("", text)
        elif token.type in (tokenize.STRING, tokenize.COMMENT) or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            new = WORDS.sub("", OURS.sub("", text)).replace("cofferdam._async", "cofferdam._sync")
        else:
            continue
        if new == text:
            continue
        if row == last:
            edits.append((row, start, end, new))
        else:
            # A text of several lines: every line of it by itself.
            for number, (old_line, new_line) in enumerate(zip(text.split("\n"), new.split("\n"), strict=True)):
                begin = start if number == 0 else 0
                edits.append((row + number, begin, begin + len(old_line), new_line))
    for row, start, end, new in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + new + line[end:]
    return NOTICE + "".join(lines)


def main(source: str, target: str) -> None:
    kept = {file.name for file in Path(source).glob("*.py")}
    for file in Path(target).glob("*.py"):
        if file.name not in kept:
            file.unlink()
    for file in Path(source).glob("*.py"):
        if file.name not in BY_HAND:
            Path(target, file.name).write_text(blocking(file.read_text()))


main(*sys.argv[1:])
