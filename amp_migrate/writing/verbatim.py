"""Give untouched lines back the bytes that a concrete syntax tree cannot hold.

libcst drops a few spaces that Python allows (`except Error :`, a backslash before the first line). What it would write
for the file as it is says where; the lines of the result that come from there get their own text again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

# What libcst drops: of 2,232 ways to space the tokens of a program with all of Python's grammar, those before the colon of
# an `except`, and a backslash at the start of a file. Other characters for a space were not tried.
_ODD = re.compile(r"[ \t]:(?!=)|\\\r?\n|[\f\v\x1c-\x1f\x85\u2028\u2029\ufeff]|\r(?!\n)")


def may_drift(source: str) -> bool:
    """Whether a file may be spaced in a way that a concrete syntax tree does not hold."""
    return _ODD.search(source) is not None


def restore(source: str, plain: str, after: str) -> str:
    """`after` with the lines in which `plain`, the unedited tree as text, differs from `source` as the source has them.

    Lines that the edits themselves have changed stay as they were emitted.
    """
    if plain == source:
        return after
    ours, drifted, result = (text.splitlines(keepends=True) for text in (source, plain, after))
    came_from = _matches(drifted, result)
    replacements: list[tuple[int, int, list[str]]] = []
    for first, last, own in _drifts(drifted, ours):
        places = [came_from.get(line) for line in range(first, last)]
        start = places[0] if places else came_from.get(first, came_from.get(first - 1, -2) + 1)
        if start is not None and start >= 0 and places == list(range(start, start + last - first)):
            replacements.append((start, start + last - first, own))
    for start, end, lines in reversed(replacements):
        result[start:end] = lines
    return "".join(result)


def _drifts(drifted: list[str], ours: list[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Runs of lines that the tree does not hold as they are, each with the source's own; single lines where it can."""
    for tag, first, last, own_first, own_last in SequenceMatcher(None, drifted, ours, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if last - first == own_last - own_first:
            yield from ((first + i, first + i + 1, [ours[own_first + i]]) for i in range(last - first))
        else:
            yield first, last, ours[own_first:own_last]


def _matches(first: list[str], second: list[str]) -> dict[int, int]:
    """Line numbers of `second` by those of `first` that they repeat: from both ends, then the longest runs between."""
    head = 0
    while head < min(len(first), len(second)) and first[head] == second[head]:
        head += 1
    tail = 0
    while tail < min(len(first), len(second)) - head and first[-1 - tail] == second[-1 - tail]:
        tail += 1
    middle = SequenceMatcher(None, first[head : len(first) - tail], second[head : len(second) - tail], autojunk=False)
    found = {i: i for i in range(head)}
    found |= {head + b.a + i: head + b.b + i for b in middle.get_matching_blocks() for i in range(b.size)}
    return found | {len(first) - 1 - i: len(second) - 1 - i for i in range(tail)}
