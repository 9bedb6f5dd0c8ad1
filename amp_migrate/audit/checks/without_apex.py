"""What a machine without Apex did before, it does after.

Programs ask whether Apex is there and have something else ready: `try: from apex... except ImportError`, `HAS_APEX`,
`"apex" in sys.modules`. Proves: where a fallback stood, what stands there now is that fallback or what torch calls the same;
no test that only an import of Apex could make true is left once the import is gone.

Cannot prove that two different things behave alike: it says which one such a machine has now. A fallback that only
complains (raises, logs) needs nothing; one that turned mixed precision off for want of Apex is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from amp_migrate.audit.calls.derived import other_eps
from amp_migrate.audit.checks.passed_by import passed_by
from amp_migrate.audit.checks.settings_gone import read_still, settings
from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, statements
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.scripted import may_compile
from amp_migrate.audit.values.same import SELF_RETURNING
from amp_migrate.audit.ways import installed
from amp_migrate.audit.ways.chains import Chains
from amp_migrate.audit.ways.installed import imports_apex
from amp_migrate.audit.ways.within import leaves
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP133",
        title="What the program did without Apex",
        construct="try: from apex import ... except ImportError",
        apex="Programs ask whether Apex is installed and use something of their own where it is not.",
        native="What stands there after the migration is what everybody gets, also those who never had Apex.",
        why="Whoever ran the program without Apex must not get another class, or an error, from this change.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    for change in review.changes.values():
        if "apex" not in change.before.read.lower() and not flags_of(review, change):
            continue
        yield from _probes(review, change)
        if installed.always_imported(review.before, change.before):
            continue  # without Apex it did nothing
        found = [*_computed_from_it(review, change), *_fallbacks(review, change), *_unread(review, change)]
        if not any("mixed precision" in doubt.message for doubt in found):
            found += passed_by(review, change)
        yield from found or _answers(review, change)


# -- probes -------------------------------------------------------------------------------------------------------


def _probes(review: Review, change: Change) -> Iterator[Doubt]:
    """`"apex" in sys.modules` is never true once nothing imports Apex."""
    if _imported(review.after) or not _imported(review.before):
        return
    for node in syntax.every(change.after.tree, ast.Compare):
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.In, ast.NotIn)):
            continue
        left = node.left
        if isinstance(left, ast.Constant) and str(left.value).split(".")[0] == "apex":
            if syntax.text(node.comparators[0]).endswith("modules"):
                yield review.doubt(
                    change.after,
                    node,
                    "AMP133",
                    syntax.text(node),
                    f"`{syntax.text(node)}` was decided by an import of Apex, which is gone: the branch that it guards is "
                    f"{'never' if isinstance(node.ops[0], ast.In) else 'always'} taken now",
                )


def _imported(program: Program) -> bool:
    kinds = (ast.Import, ast.ImportFrom)
    return any(imports_apex(n) for m in program.having("apex") for kind in kinds for n in syntax.every(m.tree, kind))


def flags_of(review: Review, change: Change) -> dict[str, bool]:
    return mixed(review).before.installed.flags(change.before)


def _computed_from_it(review: Review, change: Change) -> Iterator[Doubt]:
    """`args.fp16 = args.fp16 and HAS_APEX`, where the flag has gone and the result switches mixed precision on."""
    flags = flags_of(review, change)
    if not flags:
        return
    switching = [c for c in change.after.calls() if syntax.text(c.func).endswith(("autocast", "GradScaler"))]
    for old in statements(change.before.tree):
        new = change.back.get(old)
        if not isinstance(old, ast.Assign) or not isinstance(new, ast.Assign) or new in change.same:
            continue
        value = old.value.args[0] if isinstance(old.value, ast.Call) and old.value.args else old.value
        asked = [f for f in flags if installed.asks(value, {f: flags[f]}) and f not in syntax.text(new.value)]
        names = [syntax.text(t) for t in old.targets]
        if asked and any(_depends(mixed(review).after.chains, change.after, c, names) for c in switching):
            message = (
                f"without Apex {names[0]} was false, whatever had been asked for: {asked[0]} was a part of it. Such a "
                "machine trained in float32, and trains in mixed precision now"
            )
            yield Doubt(change.before.path, old.lineno, "AMP133", names[0], message, "look", ("AMP133",))


def _depends(chains: Chains, module: Module, call: ast.Call, names: list[str]) -> bool:
    tests = [syntax.text(t) for t, _ in chains.tests(module, call)]
    tests += [syntax.text(k.value) for k in call.keywords if k.arg == "enabled"]
    return any(re.search(rf"\b{re.escape(n)}\b", t) for n in names for t in tests)


# -- fallbacks ----------------------------------------------------------------------------------------------------


def _fallbacks(review: Review, change: Change) -> Iterator[Doubt]:
    for stmt in statements(change.before.tree):
        if isinstance(stmt, ast.Try) and installed.tries_apex(stmt):
            for handler in stmt.handlers:
                if installed.catches_import(handler):
                    yield from _fallback(review, change, stmt, handler)
                    known = {t for s in (*stmt.body, *stmt.orelse) for t, _ in _gives(s)}  # flags of Apex itself
                    yield from settings(
                        review, change, [s for s in handler.body if known.isdisjoint(t for t, _ in _gives(s))]
                    )
    flags = flags_of(review, change)
    for stmt in statements(change.before.tree):
        if isinstance(stmt, ast.If) and (there := installed.asks(stmt.test, flags)) is not None:
            without, with_ = (stmt.orelse, stmt.body) if there else (stmt.body, stmt.orelse)
            if not without and there and leaves(stmt.body):
                without = change.before.following(stmt)
            yield from _branch(review, change, stmt, without, with_)
            yield from settings(review, change, without)
            if there:
                yield from _parts_for_all(review, change, stmt)


def _unread(review: Review, change: Change) -> Iterator[Doubt]:
    """What one branch makes where the other imports a name from Apex, and nothing reads now: the runs that took it have what
    stands where it was read."""
    after = change.after
    for stmt in statements(change.before.tree):
        if not isinstance(stmt, ast.If):
            continue
        for mine, other in ((stmt.body, stmt.orelse), (stmt.orelse, stmt.body)):
            bound = {target for s in mine if imports_apex(s) for target, _ in _gives(s)}
            for old, target, value in ((s, t, v) for s in other for t, v in _gives(s) if t in bound):
                new = change.back.get(old)
                one = _what(review.before, change.before, old, value)
                if one is None or new is None or after.loads.get(target):
                    continue
                places = [change.before.statement(n) for n in change.before.loads.get(target, ())]
                calls = [c for p in places if (at := change.back.get(p)) for c in syntax.every(at, ast.Call)]
                made = [w for c in calls if (w := _what(review.after, after, after.statement(c), c)) is not None]
                if places and not any(_alike(one[0], name) for name, _, _ in made):
                    message = f"a run without Apex had {one[0]} here, which nothing reads any more"
                    yield review.doubt(after, new, "AMP133", target, message, "review")


def _fallback(review: Review, change: Change, stmt: ast.Try, handler: ast.ExceptHandler) -> Iterator[Doubt]:
    """What the handler made for want of Apex, against what stands under that name now."""
    for old in handler.body:
        if change.back.get(old) is not None and not _replaced(change, stmt):
            continue  # the fallback is still there
        for target, value in _gives(old):
            new = _given_now(change, stmt, target)
            if new is None or isinstance(value, ast.Constant):
                continue
            yield from _compare(review, change, old, value, new)


def _answers(review: Review, change: Change) -> Iterator[Doubt]:
    """A flag that said whether Apex is there, says that it is on every machine now, and is asked still."""
    for stmt in statements(change.before.tree):
        if not isinstance(stmt, ast.Try) or not installed.tries_apex(stmt):
            continue
        handlers = [h for h in stmt.handlers if installed.catches_import(h)]
        for old in (s for h in handlers for s in h.body if isinstance(s, ast.Assign)):
            there = change.back.get(old) is not None and not _replaced(change, stmt)
            for target in old.targets if not there else ():
                new = _given_now(change, stmt, syntax.text(target))
                was_off = isinstance(old.value, ast.Constant) and old.value.value in (False, None)
                is_on = isinstance(new, ast.Constant) and new.value is True
                if was_off and is_on and read_still(review, change, target):
                    message = (
                        f"{syntax.text(target)} was {syntax.text(old.value)} on a machine without Apex and is True on every machine "
                        "now: what still asks it, or a function that answers with it, takes Apex for installed. See that each means "
                        "mixed precision by it, or delete it"
                    )
                    yield Doubt(change.before.path, old.lineno, "AMP133", syntax.text(target), message, "look")


def _replaced(change: Change, stmt: ast.Try) -> bool:
    """Whether the `try` around a fallback went, or tries nothing any more that may be missing."""
    new = change.back.get(stmt)
    return not isinstance(new, ast.Try) or not any(
        isinstance(n, (ast.Import, ast.ImportFrom)) or (isinstance(n, ast.Attribute) and n.attr == "import_module")
        for s in new.body
        for n in syntax.walk(s)
    )


def _branch(
    review: Review, change: Change, stmt: ast.If, without: list[ast.stmt], with_: list[ast.stmt]
) -> Iterator[Doubt]:
    """The branch for want of Apex went, or is not reached any more; the other one stayed in some form."""
    now = change.back.get(stmt)
    still_asked = isinstance(now, ast.If) and (now in change.same or _same_flags(review, stmt.test, now.test, change))
    if still_asked:
        return
    for old in without:
        if change.back.get(old) is not None and not isinstance(now, ast.If):
            continue
        for target, value in _gives(old):
            for taken in with_:
                new = change.back.get(taken)
                if new is None:
                    continue
                for its_target, its_value in _gives(new):
                    if its_target == target:
                        yield from _compare(review, change, old, value, its_value)


def _same_flags(review: Review, before: ast.expr, after: ast.expr, change: Change) -> bool:
    """Whether a test asks for the same flags of Apex as it did."""
    flags = flags_of(review, change)

    def asked(test: ast.expr) -> set[str]:
        return {syntax.text(n) for n in syntax.walk(test) if isinstance(n, (ast.Name, ast.Attribute))} & flags.keys()

    return asked(before) == asked(after)


def _parts_for_all(review: Review, change: Change, stmt: ast.If) -> Iterator[Doubt]:
    """Parts of Apex that only a machine with Apex had, which everybody has now: `if HAS_APEX: convert_syncbn(model)`."""
    if change.back.get(stmt) is not None or (leaves(stmt.body) and not stmt.orelse):
        return
    otherwise = {target for s in stmt.orelse for target, _ in _gives(s)}  # what is put in its place: see `_branch`
    for old in stmt.body:
        if otherwise & {target for target, _ in _gives(old)}:
            continue
        for node in syntax.walk(old):
            if not isinstance(node, ast.Call) or change.back.get(old) is None:
                continue
            name = review.before.dotted(change.before.scope_of(node), node.func) or ""
            if name.startswith(("apex.parallel.", "apex.optimizers.", "apex.normalization.")):
                message = f"a machine without Apex went on without {name.rpartition('.')[2]} here; everybody has it now"
                yield Doubt(change.path, old.lineno, "AMP133", name.partition(".")[2], message, "look")
                return


def _gives(stmt: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """What a statement gives a value: names and attributes as they are written, "return" for what it returns."""
    if isinstance(stmt, ast.Return) and stmt.value is not None:
        yield "return", stmt.value
    elif isinstance(stmt, ast.Assign):
        for target in stmt.targets:
            yield syntax.text(target), stmt.value
    elif isinstance(stmt, ast.ImportFrom):
        for alias in stmt.names:
            yield alias.asname or alias.name, ast.Name(id=alias.asname or alias.name, ctx=ast.Load())
    elif isinstance(stmt, (ast.ClassDef, ast.FunctionDef)):
        yield stmt.name, ast.Name(id=stmt.name, ctx=ast.Load())


def _given_now(change: Change, stmt: ast.Try, target: str) -> ast.expr | None:
    """What the statements that the migration left of a `try` give a name now."""
    for old in syntax.walk(stmt):
        new = change.back.get(old) if isinstance(old, ast.stmt) else None
        if new is None or (new in change.same and isinstance(old, (ast.Import, ast.ImportFrom))):
            continue
        if new not in change.same or not any(old in syntax.walk(h) for h in stmt.handlers):
            for its_target, value in _gives(new):
                if its_target == target:
                    return value
    own = change.before.name_around(stmt)
    here = (new for new in change.added if change.after.name_around(new) == own)
    return next((value for new in here for its_target, value in _gives(new) if its_target == target), None)


def _compare(review: Review, change: Change, old: ast.stmt, before: ast.expr, after: ast.expr) -> Iterator[Doubt]:
    one = _what(review.before, change.before, old, before)
    other = _what(review.after, change.after, change.after.statement(after), after)
    if one is None or other is None or one[0] == other[0]:
        return
    if _alike(one[0], other[0]) and one[0].startswith("torch.") == other[0].startswith("torch."):
        return  # a class of the program's own that is called as torch's is another
    needs, same = other[1], bool(other[2]) and all(_alike(one[0], base) for base in other[2])
    torchs = other[0].startswith("torch.") and not one[0].startswith("torch.")
    yield Doubt(
        change.path,
        old.lineno,
        "AMP133",
        "except ImportError",
        f"a machine without Apex had {one[0]} here, and has {other[0]} now"
        + (
            f", which {needs}"
            if needs
            else f", which is derived from {one[0]}"
            if same
            else other_eps(review.after, old, other[0])
        ),
        "refuse" if needs else "look" if torchs or same else "review",
    )


def _what(
    program: Program, module: Module, stmt: ast.stmt, value: ast.expr
) -> tuple[str, str | None, tuple[str, ...]] | None:
    """The full name of the class or function that a value is, or is made by; what it needs beyond torch (a class of the
    program that is built on a compiled extension); and what it is derived from."""
    if isinstance(value, ast.Lambda):
        return f"`{syntax.text(value)}`", None, ()
    value = syntax.chained(value, SELF_RETURNING)  # `LayerNorm(n).to(dtype)`
    callee = value.func if isinstance(value, ast.Call) else value
    if not isinstance(callee, (ast.Name, ast.Attribute)):
        return None
    scope = module.scope_of(value) if value in module.parents else module.scope_of(stmt)
    found = program.definitions(scope, callee, guess=False)
    if found:
        bases = {b for d in found if isinstance(d, Class) for b in _bases(program, d)}
        return found[0].qualname, next((n for d in found if (n := _needs(program, d))), None), tuple(bases)
    name = program.dotted(scope, callee)
    if name is None and isinstance(stmt, ast.ImportFrom):
        name = f"{stmt.module}.{callee.id}" if isinstance(callee, ast.Name) else None
    return (name, None, ()) if name is not None and not name.startswith("apex.") else None


def _bases(program: Program, cls: Class) -> Iterator[str]:
    for base in cls.node.bases:
        yield program.dotted(cls.module.scope_of(cls.node), base) or syntax.text(base)


def _needs(program: Program, definition: Class | Function) -> str | None:
    """What a definition needs: a compiled module that it loads (`importlib.import_module("fused_adam_cuda")`), or, ignored by
    TorchScript (`@torch.jit.unused`), that nobody scripts it where the program may."""
    text = syntax.text(definition.node)
    if "import_module(" in text or re.search(r"\b(?!is_cuda\b)\w+_cuda\b", text):
        return "may need what such a machine does not have"
    if any(mark in text for mark in ("jit.unused", "jit.ignore")) and may_compile(program, definition):
        return "torch.jit.script does not take"
    return None


def _alike(one: str, other: str) -> bool:
    """Whether two names stand for one thing: `nn.LayerNorm` is `torch.nn.LayerNorm`, also from `torch.nn.modules`."""
    return one.rpartition(".")[2] == other.rpartition(".")[2]
