"""Comments that the parser gives to a block and that stand beyond it.

A comment indented like a block, further down than one that is not, makes libcst take both for the end of that block.
What stands no deeper than the statement speaks of what follows, as code that is commented out does, and stays where the
statement goes.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from amp_migrate.writing.lines import Statement


def beyond(statement: Statement, margin: str, step: str) -> tuple[Statement, list[cst.EmptyLine]]:
    """A statement without the lines beyond it at its end, and these as lines above what follows. `margin`: how the
    statement is indented; `step`: how blocks of the file are."""
    left, lines = _ended(statement, margin, margin, step)
    assert isinstance(left, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
    return left, [line if line.comment is None else _at(margin, text, line) for text, line in lines]


Lines = list[tuple[str, cst.EmptyLine]]


def _ended(node: cst.CSTNode, margin: str, around: str, step: str) -> tuple[cst.CSTNode, Lines]:
    """A statement or clause, and the lines beyond the last of its blocks with how each is indented."""
    for name in ("finalbody", "orelse", "handlers", "cases", "body"):
        last = getattr(node, name, None)
        block: cst.CSTNode
        if isinstance(last, cst.IndentedBlock):
            block, lines = _block(last, margin, around, step)
        elif isinstance(last, (cst.If, cst.Else, cst.Finally)):
            block, lines = _ended(last, margin, around, step)
        elif isinstance(last, Sequence) and last and name in ("handlers", "cases"):
            inner = around if name == "handlers" else around + (getattr(node, "indent", None) or step)
            clause, lines = _ended(last[-1], margin, inner, step)
            return (node.with_changes(**{name: [*last[:-1], clause]}), lines) if lines else (node, [])
        elif last:
            return node, []
        else:
            continue
        return (node.with_changes(**{name: block}), lines) if lines else (node, [])
    return node, []


def _block(block: cst.IndentedBlock, margin: str, around: str, step: str) -> tuple[cst.IndentedBlock, Lines]:
    inner = around + (block.indent or step)
    last, lines = _ended(block.body[-1], margin, inner, step)
    footer = [((inner if line.indent else "") + line.whitespace.value, line) for line in block.footer]
    if lines:
        return block.with_changes(body=[*block.body[:-1], last], footer=[]), [*lines, *footer]
    at = next((n for n, (text, line) in enumerate(footer) if line.comment and len(text) <= len(margin)), len(footer))
    while 0 < at < len(footer) and footer[at - 1][1].comment is None:
        at -= 1
    return (block.with_changes(footer=block.footer[:at]), footer[at:]) if at < len(footer) else (block, [])


def _at(margin: str, text: str, line: cst.EmptyLine) -> cst.EmptyLine:
    within = text.startswith(margin)
    return line.with_changes(indent=within, whitespace=cst.SimpleWhitespace(text[len(margin) :] if within else text))
