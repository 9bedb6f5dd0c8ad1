"""Every call still fits what it calls: functions whose signature the migration changed, and what is torch's now.

Proved: a call of a function of the program whose signature or returned tuple changed gives it what it needs, in the
order it needs it, overrides and `super()` included; a function handed on as a value did not get a parameter that its
caller out of sight cannot know, nor did one that is given all by what hands on all; a call that is torch's now has
arguments that torch takes (signatures kept as data, `torch_signatures.py`), of a type that it takes where torch insists:
`enabled=` a bool, `update(scale)` a float; no `.float()` that the migration wrote is called on what is no tensor,
`x.dtype`, and no method that only Apex's FP16_Optimizer had stays where none is made any more.

Not claimed: arguments in `*args` and `**kwargs` whose content is not in sight, methods of objects of unknown class, values
of unknown type.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.calls import derived, handing_on
from amp_migrate.audit.calls.torch_calls import TorchCalls, own_part
from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Function, Module
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.program.syntax import own
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import FP16_OPTIMIZER
from amp_migrate.audit.unset.passing import Passing, directly, misfit
from amp_migrate.audit.unset.places import Body
from amp_migrate.findings import Code

CODES: tuple[Code, ...] = (
    Code(
        code="AMP132",
        title="a call that would not fit what it calls after the migration",
        construct="a call",
        apex="Apex's classes and functions take arguments, or types of arguments, that torch's counterparts do not.",
        native="Calls of functions that were given a scaler must pass it; `autocast(enabled=...)` takes a bool and nothing "
        "else, `GradScaler.update` a float, `LayerNorm` no unknown keywords.",
        why="The call would raise a TypeError, or arguments would arrive under other names.",
    ),
)

# What a tensor says of itself, which is no tensor, and methods that make a tensor another one.
DESCRIPTIONS = frozenset("shape device dtype layout names ndim is_cuda requires_grad grad_fn is_leaf".split())
TO_DTYPE = frozenset("float half bfloat16 double to type cpu detach".split())

# What an FP16_Optimizer of Apex has and no optimizer of torch.
WRAPPER_ONLY = frozenset("clip_master_grads update_master_grads inspect_master_grad_data".split())
RAISED = ": it raised an AttributeError with amp.initialize, and does still"
# Who is handed a function and calls it with nothing that the program does not say there.
READING = frozenset("signature isinstance print spawn Process".split())


def check(review: Review) -> Iterable[Doubt]:
    torch_calls = TorchCalls(review)
    calls = _Calls(review)
    found = [
        *calls.of_changed_functions(),
        *calls.of_no_tensors(),
        *calls.of_foreign_methods(),
        *calls.of_the_wrapper(),
        *derived.misfits(review),
        *torch_calls.misfits(),
        *torch_calls.lost_arguments(),
    ]
    yield from {(d.path, d.line, d.construct, d.message): d for d in found}.values()


def _wraps(program: Program, module: Module, call: ast.Call) -> bool:
    return syntax.last(call.func) == "FP16_Optimizer" and (
        program.dotted(module.scope_of(call), call.func) in FP16_OPTIMIZER
    )


class _Calls:
    def __init__(self, review: Review) -> None:
        self.review = review
        self.after = Passing(review.values_after)
        self.before = review.once(Passing, lambda: Passing(review.values_before))

    def of_the_wrapper(self) -> Iterator[Doubt]:
        """`x.clip_master_grads(1)` where nothing is an FP16_Optimizer any more, whatever expression x is."""
        own = {name for m in self.review.after.modules.values() for c in m.classes for name in c.methods}
        anywhere = any("FP16_Optimizer" in m.text for m in self.review.before.modules.values())
        for change in self.review.changes.values():
            wrapped = any(_wraps(self.review.before, change.before, c) for c in change.before.calls())
            if anywhere and not wrapped:
                continue  # one may come here
            if any(_wraps(self.review.after, change.after, c) for c in change.after.calls()):
                continue
            for call in change.after.calls():
                if isinstance(call.func, ast.Attribute) and call.func.attr in WRAPPER_ONLY - own:
                    message = f"{syntax.text(call.func)}() is called here, a method of FP16_Optimizer alone"
                    message += ", which goes" if wrapped else RAISED
                    level: Verdict = "refuse" if wrapped else "review"
                    yield self.review.doubt(change.after, call, "AMP132", "a call", message, level)

    def of_no_tensors(self) -> Iterator[Doubt]:
        """`x.dtype.float()`: a method of tensors, called now on what a tensor says of itself."""
        for change in self.review.changes.values():
            for new in (*change.rewritten, *change.added):
                old = change.was(new)
                was = {syntax.text(n) for n in own_part(old)} if old is not None else set()
                for node in own_part(new):
                    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                        continue
                    asked = node.func.value
                    if not isinstance(asked, ast.Attribute) or asked.attr not in DESCRIPTIONS:
                        continue
                    if node.func.attr in TO_DTYPE and syntax.text(node) not in was:
                        message = f"{syntax.text(asked)} is no tensor, and has no {node.func.attr}()"
                        yield self._doubt(change.after, node, None, message)

    def of_foreign_methods(self) -> Iterator[Doubt]:
        """A method that is called with one more keyword now, of an object that is never one of the program's own."""
        for change in self.review.changes.values():
            for call, receiver, more in _with_more(change):
                home = self._foreign_class(change.after, receiver)
                if home is not None:
                    what = f"{syntax.text(call.func)}() is called here, and now with {' and '.join(map(str, more))}"
                    message = f"{what}; it is a method of {home}, which is not of this program"
                    yield self._doubt(change.after, call, None, message)

    def _foreign_class(self, module: Module, receiver: ast.expr) -> str | None:
        """The class from outside of the program, other than torch's, that an object is of in any case."""
        homes = set()
        for origin in self.review.values_after.of(module, receiver):
            made = origin.node.func if isinstance(origin.node, ast.Call) and not origin.path else None
            scope = origin.module.scope_of(origin.node)
            home = self.review.after.dotted(scope, made) if made is not None else None
            if made is None or home is None or self.review.after.definitions(scope, made):
                return None
            homes.add(home)
        home = homes.pop() if len(homes) == 1 else ""
        known = home.startswith("torch.") or not home.rpartition(".")[2][:1].isupper()
        return None if known else home

    # -- functions of the program ----------------------------------------------------------------------------------

    def of_changed_functions(self) -> Iterator[Doubt]:
        for change in self.review.changes.values():
            for new, old in _pairs(change):
                if syntax.text(new.node.args) != syntax.text(old.node.args):
                    yield from self._callers(new, old)
                    yield from self._handed_on(new, old)
                    yield from self._owing(new, old)
                was, now = _lengths(old), _lengths(new)
                if was is not None and now is not None and was != now:
                    yield from self._unpacked(new, now)

    def _callers(self, new: Function, old: Function) -> Iterator[Doubt]:
        if _abstract(new):
            return
        for module, call in self.review.after.callers(new):
            body = Body(module, module.function_around(call))
            if new not in self.after.callees(body, call):
                continue
            filled = 1 if self.after.fills_self(body, call, new) else 0
            wrong = misfit(new.node.args, call, filled)
            was = self._call_before(module, call)
            if was is not None and wrong is None:
                wrong = self._elsewhere(new, old, call, was, filled)
            if wrong is None or (was is not None and misfit(old.node.args, was, filled) is not None):
                continue
            yield self._doubt(module, call, new, f"{new.name}() is called here, and now {wrong}")

    def _elsewhere(self, new: Function, old: Function, call: ast.Call, was: ast.Call, filled: int) -> str | None:
        """A parameter that a call fills with something else than before, since others came before it."""
        if syntax.text(call) != syntax.text(was):
            return None
        now = self.review.after.arguments(new, call, bound=bool(filled))
        then = self.review.before.arguments(old, was, bound=bool(filled))
        if now is None or then is None:
            return self._unpacked_into(new, old, call)
        for name in [n for n in then if n in {p.arg for p in new.parameters}]:
            if name not in now or syntax.text(now[name]) != syntax.text(then[name]):
                return f"{syntax.text(then[name])} no longer arrives as {name}"
        return None

    def _unpacked_into(self, new: Function, old: Function, call: ast.Call) -> str | None:
        """What a call with `*args` or `**kwargs` that stayed as it is cannot give."""
        more = _required(new) - _required(old)
        given = {k.arg for k in call.keywords}
        if None in given or not more - given:
            return None
        if not given and len(new.parameters) == len(old.parameters) and len(_required(new)) == len(_required(old)):
            return None  # one has taken another's place: `train(*values)`, and what stood for `amp` is the scaler
        return f"{' and '.join(sorted(more))} is missing"

    def _call_before(self, module: Module, call: ast.Call) -> ast.Call | None:
        """The call that stood there before."""
        place = self.review.statement_before(module, call)
        if place is None or place[0] is module:
            return call if place is not None else None
        name = syntax.last(call.func)
        found = [n for n in own_part(place[1]) if isinstance(n, ast.Call) and syntax.last(n.func) == name]
        return found[0] if len(found) == 1 else None

    def _handed_on(self, new: Function, old: Function) -> Iterator[Doubt]:
        more = sorted(_required(new) - _required(old))
        if not more or old.owner is not None:
            return
        for module, node in self.review.after.mentions(new):
            change = self.review.changes.get(module.path)
            if change is not None and change.changed(node):
                continue
            parent = module.parents.get(node)
            if isinstance(parent, (ast.Call, ast.keyword)):
                call = parent if isinstance(parent, ast.Call) else module.parents.get(parent)
                if isinstance(call, ast.Call) and syntax.last(call.func) in READING:
                    continue
                if isinstance(call, ast.Call) and self._bound_and_called(new, module, call):
                    continue
                message = f"{new.name} is handed on here to code that calls it without {' and '.join(more)}"
                yield self._doubt(module, node, new, message)

    def _owing(self, new: Function, old: Function) -> Iterator[Doubt]:
        more = sorted(_required(new) - _required(old))
        for module, node, by in handing_on.owing(self.review, new) if more else ():
            message = f"what is run here hands all that it is given on to {new.name}, by {by.name}: without {' and '.join(more)}"
            yield self._doubt(module, node, new, message)

    def _bound_and_called(self, new: Function, module: Module, call: ast.Call) -> bool:
        """Whether a call only binds the first arguments, and every call of what that gives has all that is needed:
        `run = partial(train, model)`, `run(optimizer, scaler)`."""
        scope, parent = module.scope_of(call), module.parents.get(call)
        made: list[ast.AST | None] = [parent] if isinstance(parent, ast.Call) and parent.func is call else []
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
            name = parent.targets[0].id
            uses = [n for n in module.loads.get(name, ()) if module.scope_of(n).binder(name) is scope.binder(name)]
            made = [c if isinstance(c := module.parents.get(n), ast.Call) and c.func is n else None for n in uses]
        for one in made:
            direct = directly(self.review.after, module.scope_of(one), one) if isinstance(one, ast.Call) else one
            if not isinstance(direct, ast.Call) or direct is one or misfit(new.node.args, direct, 0) is not None:
                return False
        return bool(made)

    def _unpacked(self, new: Function, length: int) -> Iterator[Doubt]:
        for module, call in self.review.after.callers(new):
            body = Body(module, module.function_around(call))
            parent = module.parents.get(call)
            if (
                self.after.callees(body, call) != [new]
                or not isinstance(parent, ast.Assign)
                or parent.value is not call
            ):
                continue
            for target in parent.targets:
                if isinstance(target, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in target.elts):
                    if len(target.elts) != length:
                        message = f"{new.name}() returns {length} values now, and {len(target.elts)} are expected here"
                        yield self._doubt(module, call, new, message)

    def _doubt(self, module: Module, node: ast.AST, function: Function | None, message: str) -> Doubt:
        if function is None or module.path in self.review.changes:
            return self.review.doubt(module, node, "AMP132", syntax.text(node)[:60], message)
        where = f"{message} ({module.path}:{getattr(node, 'lineno', 1)})"
        return self.review.doubt(function.module, function.node, "AMP132", function.name, where)


def _with_more(change: Change) -> Iterator[tuple[ast.Call, ast.expr, set[str | None]]]:
    """The calls of methods that got keywords, and which."""
    for new, old in change.rewritten.items():
        was = {syntax.text(n.func): n for n in own_part(old) if isinstance(n, ast.Call)}
        for call in own_part(new):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                before = was.get(syntax.text(call.func))
                more = {k.arg for k in call.keywords} - {k.arg for k in before.keywords} if before else set()
                if more:
                    yield call, call.func.value, more


def _pairs(change: Change) -> Iterator[tuple[Function, Function]]:
    for new in change.after.functions:
        old = change.function_before(new)
        if old is not None:
            yield new, old


def _abstract(function: Function) -> bool:
    if function.owner is None:
        return False
    body = [s for s in function.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return all(isinstance(s, (ast.Pass, ast.Raise)) for s in body)


def _required(function: Function) -> set[str]:
    a = function.node.args
    positional = [p.arg for p in (*a.posonlyargs, *a.args)]
    needed = positional[: len(positional) - len(a.defaults)] if a.defaults else positional
    return {*needed, *(p.arg for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is None)}


def _lengths(function: Function) -> int | None:
    """How many values a function returns, if each `return` says and all agree."""
    lengths = set()
    for node in own(function.node, ast.Return):
        if not isinstance(node.value, ast.Tuple) or any(isinstance(e, ast.Starred) for e in node.value.elts):
            return None
        lengths.add(len(node.value.elts))
    return lengths.pop() if len(lengths) == 1 else None
