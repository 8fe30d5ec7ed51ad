"""Prints a terminal's recording of `coffer demo` as an animated SVG.

    deploy/record-demo.sh calls it, with the terminal's bytes on standard input

The text is that of the terminal. The picture shows it line by line at the speed of a reader, as the demonstration takes two
seconds. It leaves lines out of long answers and columns out of long lines, and marks both with an ellipsis. Where
nothing is animated it shows the last lines.
"""

import re
import sys
from html import escape
from itertools import accumulate

COLUMNS, ROWS = 96, 24
WIDTH, HEIGHT = 8.43, 18
MARGIN = 16
# Lines that are left of a long answer: its first and its last ones.
FIRST, LAST = 7, 11
# Seconds before a line appears: after a heading or a command somebody reads, after other lines less.
AFTER_HEADING, AFTER_COMMAND, AFTER_LINE, AFTER_ANSWER, AT_END = 0.6, 0.4, 0.04, 0.7, 6.0
# A path that only the recording's directory has.
DIRECTORY = re.compile(r"/var/tmp/cofferdam-demo\.\w+/projects/")

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">
<title id="title">A recording of coffer demo: a run, a refusal, consents, a commit, and the record of all of it</title>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c9d1d9;white-space:pre}}
.b{{font-weight:bold;fill:#fff}}.d{{fill:#9aa4ae}}
#s{{transform:translateY({end}px);animation:s {seconds}s step-end infinite}}
@media (prefers-reduced-motion:reduce){{#s{{animation:none}}}}
@keyframes s{{{frames}}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#161b22" stroke="#6e7681"/>
<svg x="{margin}" y="{margin}" width="{inner_width}" height="{inner_height}"><g id="s">"""


def parts(line: str) -> list[tuple[str, str]]:
    """Returns the pieces of a line with their classes, cut to the width of the picture."""
    found: list[tuple[str, str]] = []
    kind, room = "", COLUMNS
    for piece in re.split(r"(\x1b\[\d*m)", line):
        if piece.startswith("\x1b"):
            kind = {"\x1b[1m": "b", "\x1b[2m": "d"}.get(piece, "")
        elif piece and room:
            cut = piece if len(piece) <= room else piece[: room - 1] + "…"
            room -= len(cut)
            found.append((cut, kind))
    return found


def shortened(lines: list[str]) -> list[str]:
    """Returns the lines without those in the middle of a long answer."""
    kept: list[str] = []
    answer: list[str] = []
    for line in [*lines, "\x1b"]:
        if "\x1b" not in line and line:
            answer.append(line)
            continue
        left_out = len(answer) - FIRST - LAST
        if left_out > 1:
            answer[FIRST:-LAST] = [f"    \x1b[2m… {left_out} lines\x1b[0m"]
        kept += [*answer, line]
        answer = []
    return kept[:-1]


def pause(line: str, following: str) -> float:
    """Returns the seconds between a line and the one that follows it."""
    if line.startswith("\x1b[1m"):
        return AFTER_HEADING
    if "\x1b[1m$" in line:
        return AFTER_COMMAND
    return AFTER_ANSWER if "\x1b[1m" in following else AFTER_LINE


def picture(recording: str) -> str:
    """Returns the SVG."""
    lines = recording.replace("\r", "").rstrip("\n").split("\n")
    lines = shortened([DIRECTORY.sub("…/", line) for line in lines])
    pauses = [pause(*pair) for pair in zip(lines, lines[1:], strict=False)]
    moments = list(accumulate([0.0, *pauses]))
    seconds = moments[-1] + AT_END
    frames = (
        f"{100 * moment / seconds:.2f}%{{transform:translateY({(ROWS - shown) * HEIGHT}px)}}"
        for shown, moment in enumerate(moments, 1)
    )
    width = round(COLUMNS * WIDTH) + 2 * MARGIN
    height = ROWS * HEIGHT + 2 * MARGIN
    text = HEAD.format(
        width=width,
        height=height,
        end=(ROWS - len(lines)) * HEIGHT,
        seconds=round(seconds, 1),
        frames="".join(frames),
        margin=MARGIN,
        inner_width=width - 2 * MARGIN,
        inner_height=ROWS * HEIGHT,
    )
    for number, line in enumerate(lines, 1):
        spans = "".join(
            f'<tspan class="{kind}">{escape(piece, quote=False)}</tspan>' if kind else escape(piece, quote=False)
            for piece, kind in parts(line)
        )
        if spans:
            text += f'\n<text y="{number * HEIGHT - 5}" xml:space="preserve">{spans}</text>'
    return text + "\n</g></svg>\n</svg>\n"


if __name__ == "__main__":
    sys.stdout.write(picture(sys.stdin.buffer.read().decode()))
