"""Nothing else moved: statements, comments and values that have no part in mixed precision are as they were.

Proves, statement by statement: one that the edit does not mean to change is still there, under the tests it stood under; no
value that other code reads is overwritten to suit the scaler; a comment that is not about Apex is kept. Cannot prove that
what is about mixed precision is right: the other checks do.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.about import ABOUT, About, parts, written
from amp_migrate.audit.program.changes import Change, head, statements
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.torch_version import by_version
from amp_migrate.audit.program.uncalled import uncalled_now
from amp_migrate.audit.review import Review
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP134",
        title="Something beside mixed precision was changed",
        construct="a statement, a comment, a value",
        apex="-",
        native="-",
        why="A migration changes what Apex did, and nothing else.",
    ),
)

# Words to tools, which go with the statement they stand at.
PRAGMA = re.compile(r"#\s*(noqa|type:|pylint|pragma|isort|yapf|fmt)", re.IGNORECASE)
SAVING = frozenset({"save", "dump", "dumps", "safe_dump"})
# What a message says of Apex, or of finding it.
OF_IMPORTS = re.compile(r"apex|\bamp\b|nvidia|import|install|availab|found|path", re.IGNORECASE)


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        about = About(review.before, change.before)
        yield from _gone(review, change, about)
        yield from _branches(review, change, about)
        yield from _overwritten(review, change)
        yield from _comments(change)


# -- statements ---------------------------------------------------------------------------------------------------


def _gone(review: Review, change: Change, about: About) -> Iterator[Doubt]:
    """Statements that went although nothing ties them to Apex, and that did something."""
    removed = change.removed
    uncalled = uncalled_now(review.before, review.after, change)
    kinds = {_kind(s) for s in removed}
    heads = {change.heads[s] for s in statements(change.after.tree) if _kind(s) in kinds} if removed else set()
    loads = set(change.after.loads) if removed else set()
    for stmt in removed:
        if isinstance(
            stmt, (ast.Import, ast.ImportFrom, ast.Pass, ast.If, ast.With, ast.Try, ast.Global, ast.Nonlocal)
        ):
            continue  # branches and guards are unfolded; what stood in them is looked at by itself
        if _said_beside(change, stmt, heads):
            message = f"`{_short(head(stmt))}` said nothing of Apex, stood beside its import, and is gone"
            yield Doubt(change.path, stmt.lineno, "AMP134", "expr", message, "look")
        if head(stmt) in heads or _only_text(stmt) or about.statement(stmt):
            continue
        if isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)) and not _read(
            change, stmt, loads
        ):
            continue  # nothing reads it any more
        if _taken_apart(change, stmt) or not uncalled.isdisjoint(change.before.ancestors(stmt)):
            continue
        yield Doubt(
            change.path,
            stmt.lineno,
            "AMP134",
            type(stmt).__name__.lower(),
            f"`{_short(head(stmt))}` has nothing to do with Apex and is gone",
        )


def _said_beside(change: Change, stmt: ast.stmt, heads: set[str]) -> bool:
    """Whether a message that went, and that is not about Apex being there, was said where an import of Apex succeeded."""
    guard = change.before.parents.get(stmt)
    if not isinstance(guard, ast.Try) or stmt not in guard.body or head(stmt) in heads or not _only_text(stmt):
        return False
    message = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)
    imports = (s for s in guard.body if isinstance(s, (ast.Import, ast.ImportFrom)))
    return message and any("apex" in syntax.text(s) for s in imports) and not OF_IMPORTS.search(syntax.text(stmt))


def _read(change: Change, stmt: ast.stmt, loads: set[str]) -> bool:
    """Whether something reads what a statement that went gave a value; a variable of a function is read in that alone."""
    names = _targets(stmt) & loads
    function = change.before.function_around(stmt)
    targets = written(stmt)
    if not names or function is None or not targets or not all(isinstance(t, ast.Name) for t in targets):
        return bool(names)
    now = next((f for f in change.after.functions if change.function_before(f) is function), None)
    if now is None or not names.isdisjoint(change.before.scope_of(stmt).outer):
        return True
    return any(isinstance(n.ctx, ast.Load) and n.id in names for n in syntax.every(now.node, ast.Name))


def _taken_apart(change: Change, stmt: ast.stmt) -> bool:
    """Whether a part of a statement is computed in a region right before it now, and the rest reads as it did."""
    regions = [s for s in change.added if isinstance(s, ast.With) and ABOUT.search(head(s))]
    if not regions:
        return False
    was = ast.dump(_Put({}).visit(copy.deepcopy(stmt)))
    for new in (s for s in change.added if type(s) is type(stmt)):
        above = reversed(change.after.beside(new)[0])
        run = itertools.takewhile(lambda s: s in regions or (s in change.added and isinstance(s, ast.Assign)), above)
        assigned = [s for r in run for s in getattr(r, "body", [r]) if isinstance(s, ast.Assign)]
        computed = {t.id: s.value for s in assigned for t in s.targets if isinstance(t, ast.Name)}
        if computed and ast.dump(_Put(computed).visit(copy.deepcopy(new))) == was:
            return True
    return False


class _Put(ast.NodeTransformer):
    """A statement with values in the place of names, and without casts to float32."""

    def __init__(self, computed: Mapping[str, ast.expr]) -> None:
        self.computed = computed

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self.computed.get(node.id)
        if value is None:
            return node
        others = {name: given for name, given in self.computed.items() if name != node.id}
        put: ast.AST = _Put(others).visit(copy.deepcopy(value))
        return put

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return syntax.cast_to_float(node) or node


def _kind(stmt: ast.stmt) -> tuple[type, ...]:
    """What statements that say the same have in common, without spelling them out."""
    value = getattr(stmt, "value", None)
    return type(stmt), type(value), type(getattr(value, "func", None))


def _only_text(stmt: ast.stmt) -> bool:
    """A docstring, `...`, a message: nothing is lost but words."""
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant):
        return True
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        name = syntax.text(stmt.value.func)
        return name == "print" or bool(re.search(r"(log|logger|logging|warnings)\.\w+$", name))
    return isinstance(stmt, (ast.Raise, ast.Assert))


def _targets(stmt: ast.stmt) -> set[str]:
    if isinstance(stmt, (ast.FunctionDef, ast.ClassDef)):
        return {stmt.name}
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
    names = set()
    for target in targets:
        for node in syntax.walk(target) if target is not None else ():
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
    return names


def _short(text: str, width: int = 60) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


# -- branches -----------------------------------------------------------------------------------------------------


def _branches(review: Review, change: Change, about: About) -> Iterator[Doubt]:
    """Statements that are still there and stand under other tests of the program's own."""
    for new, old in change.same.items():
        if isinstance(old, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Pass)):
            continue
        if _same_place(change, old, new):
            continue
        was, now = _under(change.before, old), _under(change.after, new)
        known = {(change.was(u.stmt), u.branch) for u in now}
        kept = {(u.stmt, u.branch) for u in was}
        tests = {(u.test, u.branch) for u in was} & {(u.test, u.branch) for u in now}
        was = [u for u in was if (u.test, u.branch) not in tests and (u.stmt, u.branch) not in known]
        now = [u for u in now if (u.test, u.branch) not in tests and (change.was(u.stmt), u.branch) not in kept]
        lost = [
            u for u in was if not about.frees(u.expr, u.branch) and by_version(change.before, u.expr) is not u.branch
        ]
        left = {syntax.text(p) for u in was if about.test(u.expr) for p in parts(u.expr)}  # of `level == -1 or apex`
        gained = [u for u in now if not ABOUT.search(u.test) and not {syntax.text(p) for p in parts(u.expr)} <= left]
        if (lost or gained) and not about.stepping(old):
            test, branch = (lost or gained)[0].test, (lost or gained)[0].branch
            where = "stood" if lost else "stands now"
            yield Doubt(
                change.path,
                old.lineno,
                "AMP134",
                type(old).__name__.lower(),
                f"`{_short(head(old))}` {where} {'under' if branch else 'in the else of'} `{_short(test)}`"
                + (", and does not any more" if lost else ", and did not before"),
            )
            return  # one is enough: the rest of the block moved with it


def _same_place(change: Change, old: ast.stmt, new: ast.stmt) -> bool:
    """Whether the compound statements around a statement are the same, and the branches of them: most never moved."""
    while True:
        a, b = change.before.parents[old], change.after.parents[new]
        if not isinstance(a, ast.stmt) or not isinstance(b, ast.stmt):
            return type(a) is type(b)
        if change.same.get(b) is not a or (old in getattr(a, "orelse", ())) != (new in getattr(b, "orelse", ())):
            return False
        if isinstance(a, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return True
        old, new = a, b


@dataclass(frozen=True)
class _Under:
    """One test that a statement stands under, and the branch of it."""

    stmt: ast.stmt
    expr: ast.expr
    branch: bool

    @property
    def test(self) -> str:
        return syntax.text(self.expr)


def _under(module: Module, stmt: ast.stmt) -> list[_Under]:
    """The tests that a statement stands under in its function, outermost first."""
    found: list[_Under] = []
    child: ast.AST = stmt
    for around in module.ancestors(stmt):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            break
        if isinstance(around, (ast.If, ast.While)):
            test: ast.expr = around.test
            branch = child not in around.orelse
            while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                test, branch = test.operand, not branch
            parts = (
                list(test.values)
                if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and branch
                else [test]
            )
            found += [_Under(around, p, branch) for p in reversed(parts)]
        child = around
    return found[::-1]


def _overwritten(review: Review, change: Change) -> Iterator[Doubt]:
    """Options that the edit gives another value, and that code it left alone reads for something else."""
    # What a statement that went gave a value is given it by another one now: `model, self.opt = amp.initialize(...)`.
    had = {syntax.text(t) for s in (*change.removed, *change.rewritten.values()) for t in written(s)}
    # `model.infer = torch.autocast(...)(model.infer)` runs the same, in a region.
    had |= {syntax.text(a) for m, a, _ in mixed(review).after.regions.wrapped if m is change.after}
    for stmt in [*change.added, *change.rewritten]:
        for target in written(stmt):
            text = syntax.text(target)
            if text not in had and isinstance(target, ast.Subscript) and (saved := _saved(review, change, target)):
                message = f"`{text}` is given another value for the scaler, and {saved} saves what holds it"
                yield review.doubt(change.after, stmt, "AMP134", text, message)
            if text in had or not isinstance(target, ast.Attribute):
                continue
            reader = _reader(change, target, stmt)
            if reader is not None:
                yield review.doubt(
                    change.after,
                    stmt,
                    "AMP134",
                    text,
                    f"`{text}` is given another value for the scaler, and line {change.line(reader)} reads it for "
                    "something else",
                )


def _saved(review: Review, change: Change, item: ast.Subscript) -> str | None:
    """Where the settings that an item is one of are put whole into a dictionary or a file: `{"config": settings}`."""
    before = (n for n in syntax.every(change.before.tree, ast.Subscript) if isinstance(n.ctx, ast.Load))
    if syntax.text(item) not in map(syntax.text, before):
        return None  # no setting that was there
    root: ast.expr = item
    while isinstance(root, ast.Subscript):
        root = root.value
    made = {o.node for o in review.values_after.of(change.after, root)}
    for module in review.after.modules.values():
        kept = [v for d in syntax.every(module.tree, ast.Dict) for v in d.values if isinstance(v, ast.Name)]
        for call in (c for name in SAVING for c in module.calls_named.get(name, ())):
            if not review.after.definitions(module.scope_of(call), call.func, guess=False):
                kept += [a for a in call.args if isinstance(a, ast.Name)]
        for value in (v for v in kept if made & {o.node for o in review.values_after.of(module, v)}):
            ways = mixed(review).after.chains.to(module, value)  # one function may read the settings of many programs
            if any(step.module is change.after for way in ways for step in way.steps):
                return f"{module.path}:{review.line(module, value)}"
    return None


def _reader(change: Change, target: ast.Attribute, stmt: ast.stmt) -> ast.stmt | None:
    """A statement left as it was that reads an attribute which the program had before."""
    text = syntax.text(target)
    for node in syntax.walk(change.after.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and syntax.text(node) == text:
            reader = change.after.statement(node)
            if reader is stmt or reader not in change.same or isinstance(reader, (ast.FunctionDef, ast.ClassDef)):
                continue
            if not _comes_first(change.after, reader, stmt):
                return reader
    return None


def _comes_first(module: Module, one: ast.stmt, other: ast.stmt) -> bool:
    """Whether a statement runs before another of its function and never after it: no loop holds both."""
    if module.function_around(one) is not module.function_around(other) or one.lineno >= other.lineno:
        return False
    loops = {a for a in module.ancestors(one) if isinstance(a, (ast.For, ast.AsyncFor, ast.While))}
    return not any(a in loops for a in module.ancestors(other))


# -- comments -----------------------------------------------------------------------------------------------------


def _comments(change: Change) -> Iterator[Doubt]:
    """Comments that went and are not about Apex, where no statement that went held them."""
    if not _with_hash(change.before.text) - _with_hash(change.after.text):
        return
    left = Counter(text for _, text in _comment_lines(change.after.text).values())
    gone: dict[int, int] = {}
    every = _comment_lines(change.before.text)
    about = _about_apex(change.before, every)
    for line, (column, text) in every.items():
        if left[text]:
            left[text] -= 1
        elif line not in about and not PRAGMA.match(text) and len(text.strip("# -=*")) > 3:
            gone[line] = column
    if not gone:
        return
    spans = [(s.lineno - 1, s.end_lineno or s.lineno) for s in change.removed]
    spans += [(s.lineno - 1, s.end_lineno or s.lineno) for s in change.rewritten.values() if not hasattr(s, "body")]
    ends = {(s.end_lineno or s.lineno): s.col_offset for s in change.removed if hasattr(s, "body")}
    for line, column in gone.items():
        inside = any(first <= line <= last for first, last in spans)
        trailing = max((e for e in ends if e < line), default=None)  # the last words of a branch that went
        if not inside and (
            trailing is None or column <= ends[trailing] or not _only_comments(change.before, trailing, line)
        ):
            message = "a comment that is not about Apex is gone"
            yield Doubt(change.path, line, "AMP134", "comment", message, "review")
            return


def _about_apex(module: Module, every: dict[int, tuple[int, str]]) -> set[int]:
    """The lines of comments about Apex: what stands in one comment of several lines with a line that is."""
    found: set[int] = set()
    comment: list[int] = []
    for line in sorted(every):
        alone = module.lines[line - 1].lstrip().startswith("#")
        comment = [*comment, line] if alone and comment[-1:] == [line - 1] else [line]
        if ABOUT.search(every[line][1]) or comment[0] in found:
            found.update(comment)
        comment = comment if alone else []
    return found


def _with_hash(text: str) -> Counter[str]:
    """The lines that may hold a comment."""
    return Counter(line.strip() for line in text.splitlines() if "#" in line)


def _only_comments(module: Module, after: int, before: int) -> bool:
    """Whether nothing but comments and empty lines stands between two lines."""
    return all(not t.strip() or t.lstrip().startswith("#") for t in module.lines[after : before - 1])


_COMMENT = re.compile(r"""(\"{3}|'{3})(?:\\.|.)*?\1|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(#[^\r\n]*)""", re.DOTALL)


def _comment_lines(text: str) -> dict[int, tuple[int, str]]:
    """The comments of a file by line: their column and what they say."""
    found: dict[int, tuple[int, str]] = {}
    line, start = 1, 0
    for match in _COMMENT.finditer(text):
        if match[2] is not None:
            line, start = line + text.count("\n", start, match.start()), match.start()
            found[line] = (start - text.rfind("\n", 0, start) - 1, match[2].strip())
    return found
