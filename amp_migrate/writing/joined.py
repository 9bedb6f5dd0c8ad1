"""What edits leave of an `if`, as whoever writes it by hand would have it: one that holds nothing but an emitted `if` asks both
at once, and of two branches that have become the same one is left."""

from __future__ import annotations

import ast

import libcst as cst  # not its matchers: importing them takes longer than rewriting a file

LONGEST = 80  # characters of a test that is put together


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


def without_first(chain: cst.If, otherwise: cst.BaseExpression) -> cst.If | None:
    """`if a: <nothing> elif b: ...` as `if not a and b: ...`, where that fits into a line and no comment stands between the
    two. `otherwise`: the negation of the first test."""
    rest = chain.orelse
    if not isinstance(rest, cst.If) or rest.orelse is not None or any(line.comment for line in rest.leading_lines):
        return None
    both = cst.BooleanOperation(_operand(otherwise), cst.And(), _operand(rest.test))
    text = cst.Module([]).code_for_node(both)
    if "\n" in text or "\r" in text or len(text) > LONGEST:
        return None
    return chain.with_changes(test=both, whitespace_before_test=cst.SimpleWhitespace(" "), body=rest.body, orelse=None)


def _operand(test: cst.BaseExpression) -> cst.BaseExpression:
    loose = isinstance(test, (cst.IfExp, cst.Lambda, cst.NamedExpr)) or (
        isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or)
    )
    if not loose or test.lpar:
        return test
    return test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def branch_of_equals(node: cst.CSTNode) -> cst.BaseSuite | None:
    """The branch that is left of an `if` whose two branches are the same, if no comment is lost with the other."""
    if not isinstance(node, cst.If) or not isinstance(node.orelse, cst.Else):
        return None
    one, other = node.body, node.orelse.body
    if _comments(node.orelse) - _comments(one) or (
        isinstance(one, cst.IndentedBlock) and one.header.comment is not None
    ):
        return None
    return one if _says(one) == _says(other) else None


def _comments(node: cst.CSTNode) -> set[str]:
    own = {node.value} if isinstance(node, cst.Comment) else set[str]()
    return own.union(*map(_comments, node.children))


def _says(suite: cst.BaseSuite) -> str:
    return ast.dump(ast.parse(cst.Module([]).code_for_node(cst.If(test=cst.Name("_"), body=suite))))
