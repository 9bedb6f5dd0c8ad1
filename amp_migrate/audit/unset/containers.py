"""Attributes that a migration reads of what is a mapping or a sequence by then: `args = vars(args)` above `args.fp16`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.review import Review
from amp_migrate.audit.ways.frames import Frame, Made, frames_at
from amp_migrate.audit.ways.ordered import Undecided, ordered
from amp_migrate.audit.ways.within import tests_around

PLAIN: dict[type[ast.expr], type] = {
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.List: list,
    ast.ListComp: list,
    ast.Tuple: tuple,
    ast.Set: set,
    ast.SetComp: set,
}
GIVING = {
    "vars": dict,
    "dict": dict,
    "dataclasses.asdict": dict,
    "json.load": dict,
    "json.loads": dict,
    "yaml.safe_load": dict,
}


def of_containers(review: Review) -> Iterator[Doubt]:
    """Reads of `x.name` that the migration wrote where `x`, on some way and in the order of statements, is a container of
    Python, which has no such attribute."""
    told = set[tuple[object, ...]]()
    for change in review.changes.values():
        for read in _new_reads(change):
            key = (change.path, change.after.scope_of(read), syntax.text(read))
            if key in told:
                continue
            for frame in _frames(review, change.after, read):
                made = _lacking(review, frame, read)
                if made is not None:
                    told.add(key)
                    message = (
                        f"{syntax.text(read)} is read here, and {syntax.text(read.value)} is {made}, which has none"
                    )
                    yield review.doubt(change.after, read, "AMP131", syntax.text(read), message)
                    break


def _new_reads(change: Change) -> Iterator[ast.Attribute]:
    """Attributes of what a name holds, read in statements that are not what they were and did not read them before."""
    for stmt in (*change.added, *change.rewritten):
        was = change.was(stmt)
        known = {syntax.text(n) for n in syntax.own_line(was)} if was is not None else set()
        for node in syntax.own_line(stmt):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
                if syntax.text(node) not in known:
                    yield node


def _frames(review: Review, module: Module, read: ast.AST) -> list[Frame]:
    scope = module.scope_of(read)
    if scope.binder(read.value.id) is None:  # type: ignore[attr-defined]
        return []
    return frames_at(mixed(review).after.chains, module, read)


def _lacking(review: Review, frame: Frame, read: ast.Attribute) -> str | None:
    """What a name holds that has no attribute of the name, in one run; None where nothing like that is seen."""
    try:
        answer = ordered(review.values_after).of(frame, read, read.value)
    except Undecided:
        return None
    for made in sorted(answer.made, key=lambda m: getattr(m.node, "lineno", 0)):
        kind = _kind(review, made)
        if kind is not None and not hasattr(kind, read.attr):
            return f"the {kind.__name__} made in line {getattr(made.node, 'lineno', 0)}"
    return None


def _kind(review: Review, made: Made) -> type | None:
    """The container of Python that an expression gives."""
    node = made.node
    if made.frame is not None and _of_its_type(made.frame.module, node):
        return None
    if isinstance(node, ast.Call) and made.frame is not None:
        scope = made.frame.module.scope_of(node)
        builtin = isinstance(node.func, ast.Name) and scope.binder(node.func.id) is None
        return GIVING.get(syntax.text(node.func) if builtin else review.after.dotted(scope, node.func) or "")
    return PLAIN.get(type(node)) if isinstance(node, ast.expr) else None


def _of_its_type(module: Module, node: ast.AST) -> bool:
    """Whether a function that was handed something of a type gives this back: what it gives for another type is another."""
    return isinstance(module.statement(node), ast.Return) and any(
        syntax.last(call.func) == "isinstance"
        for test, _ in tests_around(module, node)
        for call in syntax.every(test, ast.Call)
    )
