"""What is clipped, or read, in the place of `amp.master_params(optimizer)` are the parameters that this optimizer steps.

Proved, where both are seen to be made: on each way to the place, in the order of statements (`ordered.py`), the networks whose
parameters stand there now, or the optimizer whose groups do, are among what that optimizer was made with. A name that is bound
anew is what it is there. Not proved: whether the optimizer has more or fewer parameters of the same network, optimizers that get
groups later, objects that nothing in sight makes, and what only options, loops or other objects decide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.mixed import mixed
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import COMPREHENSIONS
from amp_migrate.audit.program.targets import given_to, put_later
from amp_migrate.audit.review import Review
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.stepping.objects import Objects
from amp_migrate.audit.values.names import OPTIONS
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.ways.frames import Frame, Made, frames_at
from amp_migrate.audit.ways.ordered import Undecided, ordered
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP237",
        title="what is clipped or read is not what the optimizer steps",
        construct="amp.master_params",
        apex="`amp.master_params(optimizer)` gives the parameters of that optimizer, whatever it is by then.",
        native="Take the parameters of the optimizer's own groups.",
        why="Otherwise gradients of another model are clipped, and those that are stepped stay as large as they are.",
    ),
)

MASTER_PARAMS = "apex.amp.master_params"
PARAMETERS = ("parameters", "named_parameters")
DEEPEST = 8


def check(review: Review) -> Iterable[Doubt]:
    if not any("master_params" in change.before.text for change in review.changes.values()):
        return
    clipped = Clipped(review)
    told: set[ast.AST] = set()
    for module, call, _ in review.calls_before(MASTER_PARAMS):
        change = review.changes.get(module.path)
        optimizer = argument(call, "optimizer", 0)
        if change is None or optimizer is None:
            continue
        for now in _now(change, call):
            if now not in told and (line := clipped.wrong(change, optimizer, now)) is not None:
                told.add(now)
                name = syntax.text(optimizer)
                message = (
                    f"{syntax.text(now)} took the place of amp.master_params({name}): what {name} steps there is not among it "
                    f"({line} makes that optimizer); its gradients would be left as they are"
                )
                yield review.doubt(change.after, now, "AMP237", "amp.master_params", message)


def _now(change: Change, call: ast.Call) -> list[ast.expr]:
    """What stands in the place of a call."""
    old = change.before.statement(call)
    new = change.back.get(old)
    if new is not None:
        return _in_place(old, new, call)
    outer = change.before.parents.get(call)
    function = change.before.function_around(call)
    if not isinstance(outer, ast.Call) or call not in outer.args:
        return []
    called = syntax.text(outer.func)  # one of two branches went: the same call in the other
    twins = [
        c
        for c in change.after.calls()
        if syntax.text(c.func) == called and len(c.args) > outer.args.index(call)
        if (f := change.after.function_around(c)) is None or change.function_before(f) is function
        if (f is None) is (function is None)
    ]
    return [c.args[outer.args.index(call)] for c in twins] if len(twins) == 1 else []


def _in_place(old: ast.AST, new: ast.AST, call: ast.Call) -> list[ast.expr]:
    """The node in a statement that stands where a call stood."""
    if old is call:
        return [new] if isinstance(new, ast.expr) else []
    if type(old) is not type(new):
        return []
    found: list[ast.expr] = []
    for name, one in ast.iter_fields(old):
        other = getattr(new, name, None)
        ones, others = (one, other) if isinstance(one, list) and isinstance(other, list) else ([one], [other])
        if ones and isinstance(ones[0], ast.stmt):
            continue
        for a, b in zip(ones, others, strict=False):
            if isinstance(a, ast.AST) and isinstance(b, ast.AST):
                found += _in_place(a, b, call)
    return found


class Clipped:
    """Answers about the program after."""

    def __init__(self, review: Review) -> None:
        self.review = review
        self.program = review.after
        self.ordered = ordered(review.values_after)
        self.objects = Objects(review.values_after)

    def wrong(self, change: Change, optimizer: ast.expr, now: ast.expr) -> str | None:
        """Where the optimizer is made that something else was taken for; None where nothing is known to be wrong."""
        groups = [n.value for n in syntax.every(now, ast.Attribute) if n.attr == "param_groups"]
        if any(syntax.text(g) == syntax.text(optimizer) for g in groups):
            return None
        for frame in frames_at(mixed(self.review).after.chains, change.after, now):
            try:
                found = self._differs(frame, optimizer, now, groups)
            except Undecided:
                continue
            if found is not None:
                return found
        return None

    def _differs(self, frame: Frame, optimizer: ast.expr, now: ast.expr, groups: list[ast.expr]) -> str | None:
        stepped = self.ordered.of(frame, now, optimizer)
        if groups:
            taken = [m for g in groups for m in self.ordered.of(frame, now, g).made]
            apart = taken and all(a.surely_not(b) for a in taken for b in stepped.made)
            return self._where(next(iter(stepped.made))) if apart and stepped.made else None
        clipped, sure = self._networks(frame, now, now)
        inside = self._inside(clipped)
        wrong: list[Made] = []
        for made in sorted(stepped.made, key=lambda m: getattr(m.node, "lineno", 0)):
            own, plain = self._stepped(made)
            sure &= plain
            around = self._inside(own)
            known = bool(own and clipped)
            known &= all(a.surely_not(b) for a in clipped for b in around)
            known &= all(a.surely_not(b) for a in inside for b in own)
            if known and not self._put_into(frame, clipped, own):
                wrong.append(made)
        if not wrong or (len(wrong) < len(stepped.made) and not (sure and stepped.sure)):
            return None
        return self._where(wrong[0])

    def _where(self, made: Made) -> str:
        module = next(m for m in self.program.modules.values() if made.node in m.parents)
        return f"{module.path}:{self.review.line(module, made.node)}"

    # -- networks ----------------------------------------------------------------------------------------------------

    def _stepped(self, made: Made, depth: int = 0) -> tuple[set[Made], bool]:
        """The networks whose parameters an optimizer was made with."""
        call = made.node
        if not isinstance(call, ast.Call) or made.frame is None or depth > DEEPEST:
            raise Undecided
        module = made.frame.module
        is_one = self.objects.role(Origin(module, call, "call")) == "optimizer"
        first = argument(call, "params", 0)
        if is_one and first is None:
            raise Undecided
        parts = [first] if is_one and first is not None else [*syntax.given(call)]
        found: set[Made] = set()
        sure = True
        for part in parts:
            networks, plain = self._networks(made.frame, call, part)
            sure &= plain
            for network in networks:
                node = network.node
                if isinstance(node, ast.Call) and network.frame is not None:
                    home = network.frame.module
                    if self.objects.role(Origin(home, node, "call")) == "optimizer":  # an optimizer around another
                        inner, plain = self._stepped(network, depth + 1)
                        sure &= plain
                        found |= inner
                        continue
                found.add(network)
        return found, sure

    def _networks(self, frame: Frame, at: ast.AST, expr: ast.expr) -> tuple[set[Made], bool]:
        """What the parameters in an expression are those of; whatever else they might be made of, too."""
        walked = _Walked(self, set(), set())
        walked.follow(frame, at, expr, 0)
        return walked.found, walked.sure

    def _inside(self, made: set[Made]) -> set[Made]:
        """Networks with what they are made of: a wrapper has the parameters of what it is given."""
        found, todo = set(made), list(made)
        for _ in range(DEEPEST):
            fresh: set[Made] = set()
            for one in todo:
                call = one.node
                if not isinstance(call, ast.Call) or one.frame is None or _copies(call):
                    continue
                for part in syntax.given(call):
                    fresh |= self._networks(one.frame, call, part)[0]
            todo = [m for m in fresh if m not in found]
            found |= fresh
        return found

    def _put_into(self, frame: Frame, clipped: set[Made], own: set[Made]) -> bool:
        """Whether the program may make one network a part of another: `model.head = head`, `model.set_head(head)`."""
        names = [self._names(made) for made in (clipped, own)]
        for module in {m.frame.module for m in (*clipped, *own) if m.frame is not None} | {frame.module}:
            for node in syntax.walk(module.tree):
                if isinstance(node, ast.Assign):
                    parts = [(t, [node.value]) for t in node.targets if isinstance(t, (ast.Attribute, ast.Subscript))]
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    parts = [(node.func, [*syntax.given(node)])]
                else:
                    continue
                for target, values in parts:
                    holder = target.value
                    given = {syntax.text(n) for v in values for n in syntax.walk(v) if isinstance(n, ast.expr)}
                    for one, other in (names, names[::-1]):
                        if syntax.text(holder) in one and not given.isdisjoint(other):
                            return True
        return False

    def _names(self, made: set[Made]) -> set[str]:
        """What those are called where they are made."""
        found: set[str] = set()
        for one in made:
            if one.frame is not None and isinstance(one.node, ast.Call):
                stmt = one.frame.module.statement(one.node)
                found |= {syntax.text(t) for t in stmt.targets} if isinstance(stmt, ast.Assign) else set()
        return found


class _Walked:
    """One walk through an expression of parameters, down to the networks that they are of."""

    def __init__(self, clipped: Clipped, found: set[Made], seen: set[object]) -> None:
        self.ordered = clipped.ordered
        self.program = clipped.program
        self.found = found
        self.seen = seen
        self.sure = True

    def follow(self, frame: Frame, at: ast.AST, expr: ast.expr, depth: int) -> None:
        if depth > DEEPEST:
            raise Undecided
        for node in self._leaves(frame, at, expr):
            if isinstance(node, ast.Name) and frame.module.scope_of(at).binder(node.id) is None:
                continue  # a builtin
            try:
                answer = self.ordered.of(frame, at, node)
            except Undecided:
                self._bindings(frame, at, node, depth)
                continue
            self.sure &= answer.sure
            for made in answer.made:
                self._expand(made, depth)

    def _leaves(self, frame: Frame, at: ast.AST, expr: ast.expr) -> Iterator[ast.expr]:
        """The names, fields and calls in an expression that may stand for networks or their parameters."""
        todo: list[ast.AST] = [expr]
        bound = {
            n.id
            for c in syntax.walk(expr)
            for t in ([g.target for g in c.generators] if isinstance(c, COMPREHENSIONS) else [])
            for n in syntax.every(t, ast.Name)
        }
        bound |= {a.arg for n in syntax.walk(expr) if isinstance(n, ast.Lambda) for a in n.args.args}
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Call):
                func = node.func
                if isinstance(func, ast.Attribute) and func.attr in PARAMETERS:
                    todo.append(func.value)
                    continue
                scope = frame.module.scope_of(at)
                if self.program.definitions(scope, func, guess=False):
                    yield node
                    continue
                todo += [*syntax.given(node)]
                if isinstance(func, ast.Attribute) and self.program.imported(scope, func) is None:
                    todo.append(func.value)
                elif isinstance(func, ast.Attribute) or func is expr:
                    yield node
            elif isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
                root: ast.expr = node
                while isinstance(root, (ast.Attribute, ast.Subscript)):
                    root = root.value
                if not isinstance(root, ast.Name):
                    todo.append(root)
                elif root.id not in bound and root.id not in OPTIONS:
                    yield node
            elif not isinstance(node, (ast.Constant, ast.Compare)):
                todo += syntax.children(node)

    def _expand(self, made: Made, depth: int) -> None:
        """A list of parameters is what it holds; anything else is a network."""
        if made in self.seen:
            return
        self.seen.add(made)
        node, frame = made.node, made.frame
        if frame is None or not isinstance(node, ast.expr):
            self.found.add(made)
        elif not isinstance(node, ast.Call):
            self.follow(frame, node, node, depth + 1)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in PARAMETERS:
            self.follow(frame, node, node.func.value, depth + 1)
        else:
            self.found.add(made)
            found = self.program.definitions(frame.module.scope_of(node), node.func, guess=False)
            if not found and not syntax.last(node.func)[:1].isupper() and not _copies(node):
                for part in syntax.given(node):
                    self.follow(frame, node, part, depth + 1)

    def _bindings(self, frame: Frame, at: ast.AST, node: ast.expr, depth: int) -> None:
        """A list that grows: all that the name is given or that is put into it, in whatever order."""
        if not isinstance(node, ast.Name):
            raise Undecided
        binder = frame.module.scope_of(at).binder(node.id)
        if binder is None or binder is not frame.scope or (binder, node.id) in self.seen:
            if binder is None or (binder, node.id) not in self.seen:
                raise Undecided
            return
        self.seen.add((binder, node.id))
        self.sure = False
        for bound in binder.bindings[node.id]:
            given = given_to(bound, node.id)
            if not given:
                raise Undecided
            for value, _ in given:
                self.follow(frame, value, value, depth + 1)
        for put in put_later(frame.module).get(node.id, ()):
            if frame.module.function_around(put.value) is frame.function:
                self.follow(frame, put.value, put.value, depth + 1)


def _copies(call: ast.Call) -> bool:
    return syntax.text(call.func).rpartition(".")[2] == "deepcopy"
