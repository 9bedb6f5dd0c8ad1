"""What does a program look like in a notebook that people worked in?

Cells of a few statements each; some stand twice, in an older version first, some out of order, with text, magics and
outputs between them.
"""

from __future__ import annotations

import ast
import json
import random
from typing import Any

MAGICS = (
    "%matplotlib inline",
    "!nvidia-smi",
    "%load_ext autoreload\n%autoreload 2",
    "!pip install apex",
    "x = !ls",
    "?print",
)
HEADS = ("%%time\n", "%%capture\n", "# In[3]:\n", "\n\n", "#@title Training { run: 'auto' }\n")
OTHERS = ("%%bash\nls -l apex\n", "%%html\n<b>amp.initialize</b>", "%%writefile other.py\nfrom apex import amp\n")


def notebook(text: str, chosen: random.Random) -> str:
    """The text of a notebook file."""
    body = ast.parse(text).body
    pieces: list[list[ast.stmt]] = []
    for statement in body:
        if not pieces or chosen.random() < 0.6:
            pieces.append([])
        pieces[-1].append(statement)
    sources = ["\n".join(ast.unparse(s) for s in piece) for piece in pieces]
    definitions = [i for i, p in enumerate(pieces) if all(isinstance(s, (ast.FunctionDef, ast.ClassDef)) for s in p)]
    if definitions and chosen.random() < 0.5:  # defined once more, as it is
        at = chosen.choice(definitions)
        sources.insert(at, sources[at])
    if definitions and chosen.random() < 0.3:  # a first try that came to nothing
        at = chosen.choice(definitions)
        name = getattr(pieces[at][0], "name", "f")
        sources.insert(at, f"def {name}(*args):\n    raise NotImplementedError")
    if chosen.random() < 0.3:  # run in another order than they stand in
        one, two = chosen.randrange(len(sources)), chosen.randrange(len(sources))
        sources[one], sources[two] = sources[two], sources[one]
    if chosen.random() < 0.2:  # run twice, moved to the end
        sources.append(chosen.choice(sources))
    cells = [_code(source, chosen) for source in sources]
    for _ in range(chosen.randrange(4)):
        cells.insert(chosen.randint(0, len(cells)), _beside(chosen))
    book = {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    indent = chosen.choice((None, 1, 2, 4))
    return json.dumps(book, indent=indent, ensure_ascii=chosen.random() < 0.5) + chosen.choice(("", "\n"))


def _code(source: str, chosen: random.Random) -> dict[str, Any]:
    if chosen.random() < 0.15:
        source = chosen.choice(HEADS) + source
    if chosen.random() < 0.1:
        source += "\n" + chosen.choice(MAGICS)
    source += chosen.choice(("", "", "\n", "  ", ";"))
    lines: Any = source.splitlines(keepends=True) if chosen.random() < 0.7 else source
    return {
        "cell_type": "code",
        "execution_count": chosen.choice((None, 3)),
        "metadata": {},
        "outputs": [],
        "source": lines,
    }


def _beside(chosen: random.Random) -> dict[str, Any]:
    kind = chosen.choice(("markdown", "raw", "code", "code"))
    if kind != "code":
        return {"cell_type": kind, "metadata": {}, "source": ["# Training\n", "from apex import amp\n", "é"]}
    source = chosen.choice(("", *MAGICS, *OTHERS))
    return {"cell_type": kind, "execution_count": None, "metadata": {}, "outputs": [], "source": source}
