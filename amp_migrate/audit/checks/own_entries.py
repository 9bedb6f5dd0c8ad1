"""An evaluation that a library's user may call without the training before it keeps the precision that it had then.

`Learner.validate()` on a learner that was only loaded: `amp.initialize` stands in `Learner.fit()`, and nothing in sight says
which of the two is called first. Told of methods and functions that are named as evaluations are, in a region that the
migration wrote and whose switch does not ask the scaler, and of functions that train without one. Not proved: what a user calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.mixed import Mixed, mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.runners import evaluates
from amp_migrate.audit.ways.chains import Chain, is_test
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = ()  # told as AMP531: see `precision.py`


def check(review: Review) -> Iterable[Doubt]:
    both = mixed(review)
    yield from _functions(both)
    setting = _setting_up(both)
    for change in review.changes.values() if setting else ():
        module = change.after
        told: set[Function] = set()
        for forward, region, function in both.in_written_regions(module):
            if function is None or function.owner is None or function in told or not evaluates(function.name):
                continue
            if function.name.startswith("_"):
                continue
            asked = syntax.text(region.enabled) if region.enabled is not None else "True"
            setter = next((s for c in _family(both, function.owner) for s in setting.get(c, ())), None)
            if setter is None or setter.name == function.name or "scaler" in asked:
                continue
            if _set_by(both, function.owner, setter.name, region.enabled):
                continue  # off until then
            if any(_of_program(way) for way in both.after.chains.to(module, forward.call)):
                continue  # the program itself calls it: see `precision.py`
            told.add(function)
            where = "" if asked == "True" else f" where {asked}"
            message = (
                f"{forward.text} runs under autocast now{where}, also for who calls {function.name}() on an object whose "
                f"{setter.name}(), where Apex was set up, has not run: it was float32 there. Let enabled= ask for that to "
                "keep it"
            )
            yield review.doubt(module, forward.call, "AMP531", "a call of the model", message, "look", ("AMP531",))


def _functions(both: Mixed) -> Iterator[Doubt]:
    """The same of functions, where each set-up stands in another one that nothing in sight calls."""
    setting = {s.module.function_around(s.call): s for s in both.removed}
    ways = [way for s in both.removed for way in both.before.chains.to(s.module, s.call)]
    if not ways or not all(w.open and len(w.steps) == 1 for w in ways):
        return
    names = {f.name for f in setting if f is not None}
    for change in both.review.changes.values():
        told: set[Function] = set()
        for forward, region, function in both.in_written_regions(change.after):
            if function is None or function.owner is not None or function in told or function.name in names:
                continue
            given = {p.arg for p in function.parameters}
            asked = region.enabled
            if (isinstance(asked, ast.Name) and asked.id in given) or "scaler" in (syntax.text(asked) if asked else ""):
                continue
            called = {syntax.last(c.func) for c in syntax.every(function.node, ast.Call)}
            plain = "backward" in called and "scale" not in called
            came = both.after.chains.to(change.after, forward.call)
            if not (plain or evaluates(function.name)) or not all(w.open and len(w.steps) == 1 for w in came):
                continue
            told.add(function)
            where = f" where {syntax.text(asked)}" if asked is not None else ""
            message = (
                f"{forward.text} runs under autocast now{where}, also for who calls {function.name}() without "
                f"{' or '.join(f'{n}()' for n in sorted(names))} before, where Apex was set up: it was float32 there"
                f"{', and its loss is not scaled' * plain}. Take the region out, or ask for that with enabled=, to keep it"
            )
            verdict: Verdict = "review" if plain else "look"
            yield both.review.doubt(change.after, forward.call, "AMP531", "a call of the model", message, verdict)


def _of_program(way: Chain) -> bool:
    """Whether a script of the program comes that way: no test, and no notebook, which shows what a user may do."""
    return not way.open and not is_test(way.start.function) and not way.start.module.path.endswith(".ipynb")


def _set_by(both: Mixed, cls: Class, setter: str, asked: ast.expr | None) -> bool:
    """Whether what is asked for is an attribute of the object that the method which set Apex up gives it."""
    if not isinstance(asked, ast.Attribute) or not isinstance(asked.value, ast.Name):
        return False
    stored = (
        t
        for c in both.review.after.family(cls)
        for f in c.methods.get(setter, ())
        for t in syntax.every(f.node, ast.Attribute)
        if isinstance(t.ctx, ast.Store) and isinstance(t.value, ast.Name) and f.parameters
        if t.value.id == f.parameters[0].arg
    )
    return any(t.attr == asked.attr for t in stored)


def _setting_up(both: Mixed) -> dict[tuple[str, str], list[Function]]:
    """By class, the methods that set Apex up for who calls them: not for whoever makes an object."""
    found: dict[tuple[str, str], list[Function]] = {}
    for setup in both.removed:
        function = setup.module.function_around(setup.call)
        if function is None or function.owner is None:
            continue
        ways = both.before.chains.to(setup.module, setup.call)
        if not any(s.function is not None and s.function.name == "__init__" for way in ways for s in way.steps):
            found.setdefault((setup.module.path, function.owner.qualname), []).append(function)
    return found


def _family(both: Mixed, cls: Class) -> list[tuple[str, str]]:
    return [(c.module.path, c.qualname) for c in both.review.after.family(cls)]
