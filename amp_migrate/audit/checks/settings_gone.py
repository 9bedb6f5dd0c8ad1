"""Settings that the want of Apex made, `fp16 = False`, and that nothing makes any more: told as AMP133, see `without_apex.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.review import Review


def settings(review: Review, change: Change, without: list[ast.stmt]) -> Iterator[Doubt]:
    """What was set for want of Apex, is read still, and is set no more: `args.opt_level = "O0"`, `fp16 = False`."""
    for old in (n for s in without for n in syntax.walk(s)):
        if (
            not isinstance(old, ast.Assign)
            or change.back.get(old) is not None
            or not isinstance(old.value, ast.Constant)
        ):
            continue
        for target in old.targets:
            if old.value.value is not None and read_still(review, change, target):
                message = (
                    f"a machine without Apex had {syntax.text(target)} = {syntax.text(old.value)} from here on; nothing sets "
                    "it now, so that mixed precision is on there too where it is asked for"
                )
                usual = _usual(change, old, target)
                if usual:
                    refused = _handed_out(review, change, target)
                    message += ", which is the default, also without CUDA: "
                    message += f"{refused} refuses float16 there" if refused else "torch warns there, and leaves it off"
                verdict: Verdict = "review" if usual else "look"
                yield Doubt(change.path, old.lineno, "AMP133", syntax.text(target), message, verdict)
                return


def _usual(change: Change, stmt: ast.stmt, target: ast.expr) -> bool:
    """Whether what is switched off is a parameter that calls leave on: `def make(data, fp16=True)`."""
    function = change.before.function_around(stmt)
    if function is None or not isinstance(target, ast.Name):
        return False
    given = function.defaults.get(target.id)
    return isinstance(given, ast.Constant) and given.value is True


def read_still(review: Review, change: Change, target: ast.expr) -> bool:
    """Whether the program still reads what a statement that went had set."""
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", None)
    modules = review.after.having(name) if isinstance(target, ast.Attribute) and name is not None else [change.after]
    for module in modules if name is not None else ():
        for node in syntax.walk(module.tree):
            if isinstance(node, type(target)) and isinstance(getattr(node, "ctx", None), ast.Load):
                if (syntax.last(node)) == name:
                    return True
    return False


def _handed_out(review: Review, change: Change, target: ast.expr) -> str:
    """What code out of sight is told, by the name of float16, what a setting says: `TrainingArguments(fp16=fp16)`."""
    name = syntax.last(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
    for call in change.after.calls():
        scope = change.after.scope_of(call)
        if any(k.arg in ("fp16", "half") and name == syntax.last(k.value) for k in call.keywords):
            if not review.after.definitions(scope, call.func, guess=False):
                return syntax.text(call.func)
    return ""
