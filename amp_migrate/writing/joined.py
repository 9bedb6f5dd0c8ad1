"""An `if` that holds nothing but an emitted `if` asks both at once, as whoever writes it by hand would."""

from __future__ import annotations

import libcst as cst


def joined(outer: cst.If, columns: int) -> cst.If:
    """`if a: if b: ...` as `if a and b: ...`, where that fits into a line and no comment stands between the two."""
    inner = outer.body.body[0] if len(outer.body.body) == 1 else None
    if not isinstance(outer.body, cst.IndentedBlock) or not isinstance(inner, cst.If):
        return outer
    if outer.orelse is not None or inner.orelse is not None or not isinstance(inner.body, cst.IndentedBlock):
        return outer
    if inner.body.header.comment is not None or any(line.comment is not None for line in inner.leading_lines):
        return outer
    both = cst.BooleanOperation(_operand(outer.test), cst.And(), _operand(inner.test))
    text = cst.Module([]).code_for_node(both)
    if "\n" in text or "\r" in text or len(f"if {text}:") > columns:
        return outer
    return outer.with_changes(test=both, body=outer.body.with_changes(body=inner.body.body))


def _operand(test: cst.BaseExpression) -> cst.BaseExpression:
    loose = isinstance(test, (cst.IfExp, cst.Lambda, cst.NamedExpr)) or (
        isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or)
    )
    if not loose or test.lpar:
        return test
    return test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
