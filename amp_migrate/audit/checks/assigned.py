"""Every name, attribute or item that the edit introduced, or now reads, has a value on every path that reads it.

Proved, for each such read: no path of the body that assigns it, of another mode of `main`, of another function, script
or notebook cell that calls there, comes to the read before an assignment; names that went with an import are read nowhere,
here or in files that import them; an attribute of `self` is assigned by some class of its object (`fields.py`), and is
not read any more where none does (`no_longer.py`); an option or item that was read under a test alone still is, unless
every run is seen to have it (`untested.py`). Tests are remembered along a path (`facts.py`), also into calls.

Not claimed: paths that failed before the migration too, paths through a loop that never turns or a handler that catches
everything, and what cannot be followed: objects made out of sight, attributes set by name, functions kept in containers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.paths.facts import NOTHING, Facts, assigned, told
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change, conditions
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.options import declared, declared_in
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review, names_called
from amp_migrate.audit.unset.containers import of_containers
from amp_migrate.audit.unset.fields import never_given, of_another, of_settings
from amp_migrate.audit.unset.gone import gone
from amp_migrate.audit.unset.no_longer import no_longer_given
from amp_migrate.audit.unset.places import PROCESS_GROUP, Body, own_statements, root
from amp_migrate.audit.unset.unset import AS_IMPORT, AS_SCRIPT, Claim, Unset
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = (
    Code(
        code="AMP131",
        title="a name, attribute or item that is read where the migration would not have assigned it",
        construct="a name",
        apex="Apex keeps its state in its own module: code that never set it up reads nothing of it.",
        native="A scaler is an object: whoever reads it, or a flag beside it, must have been given it.",
        why="A run in another mode, a method called before training, or another script would stop with a NameError or "
        "AttributeError.",
    ),
)


def check(review: Review) -> Iterable[Doubt]:
    yield from gone(review)
    yield from never_given(review)
    yield from of_another(review)
    yield from of_settings(review)
    yield from of_containers(review)
    yield from no_longer_given(review)
    after, before = Unset(review.values_after), review.once(Unset, lambda: Unset(review.values_before))
    found: dict[tuple[object, ...], Doubt] = {}
    made: dict[tuple[str, str], list[Claim]] = {}
    for change in review.changes.values():
        for body, old in _bodies(after, before, change):
            without: set[str] = set()  # names of this body that are told: what hangs on them is not told again
            for place in sorted(_asked(review, change, body, old)):
                if root(place) in without:
                    continue
                after.settings.asked = False
                doubts = list(_followed(review, after, before, change, body, place))
                if (
                    not doubts and after.settings.asked
                ):  # as it is written nothing is wrong; but it may be set otherwise
                    doubts = list(_followed(review, after.unsettled, before.unsettled, change, body, place))
                for doubt in doubts:
                    without.add(place)
                    if isinstance(doubt, Doubt):
                        found.setdefault((doubt.path, doubt.line, doubt.construct, doubt.verdict), doubt)
                    else:
                        made.setdefault((doubt.fault.module.path, _class(doubt)), []).append(doubt)
    yield from found.values()
    for claims in made.values():
        yield _on_new_object(review, claims)


def _followed(
    review: Review, after: Unset, before: Unset, change: Change, body: Body, place: str
) -> Iterator[Doubt | Claim]:
    claims = [
        c
        for c in after.claims(body, place)
        if not _needed_apex(review, c) and not _failed_sooner(review, before, c) and not _much_edited(after, c)
    ]
    if claims and not _failed_before(before, change, body, place):
        claim = min(claims, key=lambda c: (c.how == "method", not c.fault.missed, _line(c), len(c.fault.facts)))
        if claim.fault.module.path in review.changes:
            if claim.how == "method" and not claim.fault.missed:
                yield from (c for c in claims if c.fault.module.path in review.changes)
            else:
                yield _doubt(review, after, claim)
    elif not claims:
        yield from _scripts_own(review, after, before, change, body, place)
        yield from _another_parser(review, change, body, place)


def _line(claim: Claim) -> int:
    return getattr(claim.fault.node, "lineno", 0)


def _bodies(after: Unset, before: Unset, change: Change) -> Iterator[tuple[Body, Body | None]]:
    """The bodies of a file in which something may be read otherwise, each with what it was before."""
    yield after.body(change.after, None), before.body(change.before, None)
    elsewhere = {re.split(r"[.\[]", t)[-1] for s in (*change.removed, *change.added) for t in assigned(s)}
    for function in change.after.functions:
        old = change.function_before(function)
        text = _text(function)
        if old is None or text != _text(old) or any(name.strip("']") in text for name in elsewhere):
            yield after.body(change.after, function), before.body(change.before, old) if old is not None else None


def _text(function: Function) -> str:
    return "\n".join(function.module.lines[function.node.lineno - 1 : function.node.end_lineno])


def _read_before(change: Change, old: Body | None, place: str, here: Sequence[str]) -> bool:
    """Whether a place was read before the migration whenever these conditions hold."""
    reads = (s for s, e in old.about(place) if e.kind == "read" and not e.guards) if old is not None else ()
    return any(here[: len(then)] == then for then in (conditions(change.before, stmt) for stmt in reads))


def _asked(review: Review, change: Change, body: Body, old: Body | None) -> set[str]:
    """The places to follow in a body: read where they were not read before, or assigned otherwise now.

    A place that was read before whenever the new place of the read is reached is no new one.
    """
    asked: set[str] = set()
    stored = set(_removed(change))
    moved = [s for s in own_statements(body.statements) if change.moved(s)]
    for stmt in moved:
        for event in body.of(stmt):
            if event.kind == "read" and event.text not in asked:
                if not _read_before(change, old, event.text, conditions(change.after, stmt)):
                    asked.add(event.text)
            elif event.kind == "store":
                stored.add(event.text)
    text = _text(body.function) if body.function is not None else change.after.text
    stored = {place for place in stored if place == PROCESS_GROUP or _last(place) in text}
    if stored:
        asked |= {e.text for _, e in body.everything if e.kind == "read" and e.text in stored}
    return {place for place in asked if _to_follow(review, body, place)}


@kept
def _removed(change: Change) -> set[str]:
    """The places that statements assigned which went, in whatever function of the file."""
    return {t for s in change.removed for t in assigned(s) if t not in _read_by(s)}


def _last(place: str) -> str:
    """The last name of a place."""
    return re.split(r"[.\[]", place.removesuffix("[...]"))[-1].strip("']")


def _read_by(stmt: ast.stmt) -> set[str]:
    """The places that an assignment reads itself, whatever comes: without a value, `x = initialize(x)` raised."""
    if not isinstance(stmt, (ast.Assign, ast.AnnAssign)) or stmt.value is None:
        return set()
    nodes = list(syntax.walk(stmt.value))
    later = any(isinstance(n, (ast.Lambda, ast.BoolOp, ast.IfExp)) for n in nodes)
    return set() if later else {syntax.text(n) for n in nodes if isinstance(n, (ast.Name, ast.Attribute))}


def _to_follow(review: Review, body: Body, place: str) -> bool:
    name, rest = root(place), place[len(root(place)) :]
    scope = body.scope.binder(name)
    if scope is None or scope.is_class:
        return False
    if not rest:
        return not (scope is body.scope and name in body.parameters) and not _plain(scope.bindings[name], scope.node)
    if rest.count(".") + rest.count("[") != 1:
        return False
    if review.after.dotted(body.scope, ast.Name(name, ast.Load())) is not None:
        return False
    attribute = rest[1:] if rest.startswith(".") else None
    if attribute is None:
        return True
    cls = review.after.is_self(body.scope, ast.Name(name, ast.Load()))
    if cls is not None and any(attribute in c.methods for c in review.after.family(cls)):
        return False
    if cls is not None:
        return True
    if (attribute in declared(review.after) or attribute in declared(review.before)) and "scaler" not in name.lower():
        return True
    if _written(review, place, name):
        return True
    return _own_class(review, body, name, attribute)


@kept
def _written(review: Review, place: str, name: str) -> bool:
    """Whether an assignment of a place is written anywhere, as text."""
    return any(f"{place} = " in m.text for p in (review.after, review.before) for m in p.having(name))


def _own_class(review: Review, body: Body, name: str, attribute: str) -> bool:
    """Whether an attribute is one that a class of the program gives its objects, of which this is one."""
    given = [review.after.is_self(m.scope_of(at), at.value) for m, at, _, _ in review.values_after.fields(attribute)]
    owners = {cls for cls in given if cls is not None}
    origins = review.values_after.origins(body.scope, ast.Name(name, ast.Load())) if owners else ()
    made = (cls for origin in origins for cls in review.values_after.made(origin))
    return any(not owners.isdisjoint(review.after.family(cls)) for cls in made)


def _plain(bindings: list[ast.AST], top: ast.AST) -> bool:
    """Whether a name is a definition or import that stands unconditionally at the top of its module."""
    definitions = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    return isinstance(top, ast.Module) and any(isinstance(b, definitions) and b in top.body for b in bindings)


def _failed_before(before: Unset, change: Change, body: Body, place: str) -> bool:
    if body.function is None:
        return bool(before.claims(before.body(change.before, None), place))
    old = change.function_before(body.function)
    return old is not None and bool(before.claims(before.body(change.before, old), place))


def _failed_sooner(review: Review, before: Unset, claim: Claim) -> bool:
    """Whether such a run read the place without a value before the migration too, wherever on its way."""
    module = review.before.modules.get(claim.body.module.path)
    function = claim.body.function
    if claim.how != "run" or function is None or module is None:
        return False
    old = [f for f in module.functions if f.qualname == function.qualname]
    faults = before.faults(before.body(module, old[0]), claim.place) if len(old) == 1 else []
    return any(f.facts <= claim.fault.facts for f in faults)


def _much_edited(after: Unset, claim: Claim) -> bool:
    """Whether a run comes to a read only with more than one setting other than it is written in the same body."""
    written: dict[str, bool] = {}
    for stmt in own_statements(claim.body.statements) if not after.settings.kept else ():
        if isinstance(stmt, ast.Assign):
            made = after.given.made(claim.body.module.scope_of(stmt), stmt)
            written |= {**dict(told(stmt, NOTHING, NOTHING)), **{key: holds for key, holds, _ in made}}
    return sum(written.get(key, holds) is not holds for key, holds in claim.fault.facts) > 1


def _needed_apex(review: Review, claim: Claim) -> bool:
    """Whether the method that a claim begins with called `scale_loss` whatever came: without `initialize` that failed."""
    change = review.changes.get(claim.body.module.path)
    if claim.how != "method" or change is None or claim.body.function is None:
        return False
    old = change.function_before(claim.body.function)
    return old is not None and _scales(review.before, old)


def _scales(program: Program, function: Function, depth: int = 0) -> bool:
    for stmt in _always(function.node.body):
        for node in syntax.walk(stmt):
            if not isinstance(node, ast.Call):
                continue
            if syntax.text(node.func).endswith("scale_loss"):
                return True
            if isinstance(node.func, ast.Attribute) and program.is_self(function.scope, node.func.value) and depth < 3:
                called = program.definitions(function.scope, node.func, guess=False)
                if any(isinstance(f, Function) and _scales(program, f, depth + 1) for f in called):
                    return True
    return False


def _always(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The lines of a body that run whatever tests say."""
    for stmt in body:
        if isinstance(stmt, (ast.With, ast.For, ast.While)):
            yield from (ast.Expr(i.context_expr) for i in getattr(stmt, "items", ()))
            yield from _always(stmt.body)
        elif not isinstance(stmt, (ast.If, ast.Try, ast.FunctionDef, ast.ClassDef)):
            yield stmt


def _class(claim: Claim) -> str:
    function = claim.body.function
    return f"{function.owner.qualname if function is not None and function.owner is not None else ''} {claim.place}"


def _on_new_object(review: Review, claims: list[Claim]) -> Doubt:
    """One doubt about all methods of a class that read an attribute which an object just made does not have."""
    first = min(claims, key=_line)
    names = sorted({f"{c.body.function.name}()" for c in claims if c.body.function is not None})
    owner = first.body.function.owner.name if first.body.function and first.body.function.owner else "object"
    message = f"{', '.join(names)} of a new {owner}: {first.place} is assigned later only, and nothing needed it before"
    return review.doubt(first.fault.module, first.fault.node, "AMP131", first.place, message, "review")


def _doubt(review: Review, after: Unset, claim: Claim) -> Doubt:
    fault = claim.fault
    text = syntax.text(fault.node) if isinstance(fault.node, ast.expr) else claim.place
    name = claim.body.function.qualname if claim.body.function is not None else ""
    at = f"{name}()" if name else "the script"
    if claim.body.module is not fault.module:
        at += f" of {claim.body.module.path}"
    if claim.how == "init":
        message = f"{text} has no value here in {at} of a new object{_when(fault.facts)}: it is made further down"
        if _loaded_before(review, fault.module, fault.node):
            message += "; Apex, which was not set up by then, raised here too. Make it before that call"
            return review.doubt(fault.module, fault.node, "AMP131", text, message, "review")
    elif claim.how == "import":
        message = f"{text} has no value here when {at} calls: only a run of this file as a script assigns it"
    else:
        message = f"{text} has no value here in a run of {at}{_when(after.deciding(claim))}: only other paths assign it"
    return review.doubt(fault.module, fault.node, "AMP131", text, message)


def _loaded_before(review: Review, module: Module, node: ast.AST) -> bool:
    """Whether the function of a read gave Apex a state to load, which Apex takes only once it is set up."""
    change, function = review.changes.get(module.path), module.function_around(node)
    old = change.function_before(function) if change is not None and function is not None else None
    called = names_called(review.before, old.module, old.node) if old is not None else set()
    return not called.isdisjoint(("apex.amp.load_state_dict", "apex.amp.state_dict"))


def _when(known: Facts) -> str:
    told = sorted((f for f in known if ":=" not in f[0] and "__name__" not in f[0]), key=lambda f: (len(f[0]), f))
    return " where " + " and ".join(f"`{key}` is {str(holds).lower()}" for key, holds in told[:2]) if told else ""


def _scripts_own(
    review: Review, after: Unset, before: Unset, change: Change, body: Body, place: str
) -> Iterator[Doubt]:
    """A function that others may import reads what exists only while its file runs as a script."""
    name, top = root(place), after.body(change.after, None)
    if body.function is None or body.scope.binder(name) is not change.after.top:
        return
    old, outside = change.function_before(body.function), before.body(change.before, None)
    if old is None or after.sure(top, name, AS_IMPORT) or not after.sure(top, name, AS_SCRIPT):
        return
    around = {old, *(module.function_around(call) for module, call in before.program.callers(old))}
    if any(f is not None and _reads_scripts_own(before, outside, f) for f in around):
        return
    node = next(e.node for _, e in body.everything if e.kind == "read" and e.text == name)
    message = (
        f"{name} exists only while this file runs as a script: whoever imports {body.function.name}() from it, or what "
        "calls that, gets a NameError; before, nothing of the script was read"
    )
    imported = any(
        review.after.module_named(review.after._base(m, n), m) is change.after
        for m in review.after.modules.values()
        if change.after.name.rpartition(".")[2] in m.text
        for n in syntax.every(m.tree, ast.ImportFrom)
    )
    if imported or name in change.before.top.bindings:  # the script's own scaler is where scripts have it
        yield review.doubt(change.after, node, "AMP131", name, message, "review" if imported else "look")


def _another_parser(review: Review, change: Change, body: Body, place: str) -> Iterator[Doubt]:
    """`main(args)` that nothing in sight calls, in a file that says itself which options there are, reads one more now."""
    name, _, option = place.partition(".")
    if body.function is None or not option.isidentifier() or name not in body.parameters:
        return
    called = review.after.callers(body.function) or review.after.mentions(body.function)  # `partial(main, args)()`
    if called or review.after.is_self(body.scope, ast.Name(name, ast.Load())):
        return
    own = declared_in(change.after)
    read = {
        n.attr
        for n in syntax.every(change.before.tree, ast.Attribute)
        if isinstance(n.value, ast.Name) and n.value.id == name
    }
    stored = {e.text.partition(".")[2] for _, e in body.everything if e.kind == "store" and root(e.text) == name}
    if not own or not read & own or option in own | read | stored:
        return
    there = {e.text for _, e in body.everything if e.kind == "read" and root(e.text) == name}
    others = {text.partition(".")[2].partition(".")[0].partition("[")[0] for text in there} - {option, ""}
    if others & declared(review.after) - own - stored:
        return  # it reads the options of another command line
    node = next(e.node for _, e in body.everything if e.kind == "read" and e.text == place)
    message = (
        f"{place} is no option of the command line that this file declares: {body.function.qualname}() gets what that "
        "parses, and stops with an AttributeError"
    )
    yield review.doubt(change.after, node, "AMP131", place, message)


def _reads_scripts_own(unset: Unset, top: Body, function: Function) -> bool:
    body = unset.body(function.module, function)
    names = {e.text for _, e in body.everything if e.kind == "read" and "." not in e.text and "[" not in e.text}
    free = [n for n in names if body.scope.binder(n) is top.scope]
    return any(not unset.sure(top, n, AS_IMPORT) for n in sorted(free))
