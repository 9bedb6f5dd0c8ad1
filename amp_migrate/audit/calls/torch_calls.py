"""Calls that are torch's after the migration: whether torch takes their arguments, and what Apex took that torch does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from amp_migrate.audit.calls.kinds import BOOL, FLOAT, NONE, STR, Kinds, KindsOf
from amp_migrate.audit.calls.torch_signatures import ALIASES, SCALER, signature
from amp_migrate.audit.doubts import Doubt, Verdict
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.changes import Change
from amp_migrate.audit.program.module import Module, Scope
from amp_migrate.audit.review import Review
from amp_migrate.audit.unset.given import Given
from amp_migrate.audit.unset.passing import misfit

# Arguments of Apex's that mean something and that torch has no counterpart of; the values that mean nothing.
APEX_ONLY: dict[str, dict[str, tuple[object, ...]]] = {
    "SyncBatchNorm": {"channel_last": (False, None), "fuse_relu": (False, None)},
    "convert_syncbn_model": {"channel_last": (False, None)},
    "FusedAdam": {"master_weights": (False, None), "bias_correction": (True, 1), "max_grad_norm": (0, None)},
    "FusedSGD": {"wd_after_momentum": (False, None)},
}


# Where such arguments stand when they are given without their name.
POSITIONS = {"SyncBatchNorm": {6: "channel_last", 7: "fuse_relu"}, "convert_syncbn_model": {2: "channel_last"}}

NUMBERS = ("init_scale", "growth_interval", "growth_factor", "backoff_factor")
DEVICE_TYPES = (
    ("torch.autocast", "device_type"),
    ("torch.amp.custom_fwd", "device_type"),
    ("torch.amp.GradScaler", "device"),
)

# What Apex itself refuses was wrong before.
STRICT = {
    "DistributedDataParallel": "module message_size delay_allreduce shared_param allreduce_trigger_params "
    "retain_allreduce_buffers allreduce_always_fp32 num_allreduce_streams allreduce_communicators gradient_average "
    "gradient_predivide_factor gradient_average_split_factor prof",
}


class TorchCalls:
    """The calls of one migration."""

    def __init__(self, review: Review) -> None:
        self.review = review
        self.kinds = KindsOf(review.values_after, Given(review.values_after))

    def misfits(self) -> Iterator[Doubt]:
        review = self.review
        renamed = self._renamed()
        for module in review.after.modules.values():
            change = review.changes.get(module.path)
            if change is None and not any(name in module.text for name in renamed):
                continue
            for call in module.calls():
                found = self._torch_callee(module, call)
                if found is None:
                    continue
                name, arguments, shown = found
                if change is not None and not change.moved(change.after.statement(call)):
                    if not self._renamed_here(change, call, name):
                        continue
                if change is None and syntax.last(shown.func) not in renamed:
                    continue
                where = change.after if change is not None else module
                if (doubt := self._torch_call(where, shown, name, arguments)) is not None:
                    yield doubt
            if change is not None:
                yield from self._decorators(change)

    def _renamed(self) -> set[str]:
        """Names that other files may import from a changed one, and that mean something of torch's since."""
        names: set[str] = set()
        for change in self.review.changes.values():
            for name in change.after.top.bindings:
                now = self.review.after.dotted(change.after.top, ast.Name(name, ast.Load()))
                if now is not None and signature(now) is not None:
                    if self.review.before.dotted(change.before.top, ast.Name(name, ast.Load())) != now:
                        names.add(name)
        return names

    def _renamed_here(self, change: Change, call: ast.Call, name: str) -> bool:
        old = change.was(change.after.statement(call))
        for node in own_part(old) if old is not None else ():
            if isinstance(node, ast.Call) and syntax.text(node) == syntax.text(call):
                return self.review.before.dotted(change.before.scope_of(node), node.func) != name
        return False

    def _torch_callee(self, module: Module, call: ast.Call) -> tuple[str, ast.arguments, ast.Call] | None:
        """The name and signature of what a call runs of torch; `partial(f, x)` is a call of f that may lack arguments."""
        scope, program = module.scope_of(call), self.review.after
        name = program.dotted(scope, call.func)
        if name in ("functools.partial", "partial") and call.args:
            name = program.dotted(scope, call.args[0])
            known = signature(name) if name is not None else None
            shown = ast.copy_location(ast.Call(call.args[0], call.args[1:], call.keywords), call)
            return (name, _optional(known), shown) if name is not None and known is not None else None
        if name is None and isinstance(call.func, ast.Attribute):
            name = self._method(scope, call)
        if name is None:
            return None
        known = signature(name)
        if known is None:
            return None
        return name, known, call

    def _method(self, scope: Scope, call: ast.Call) -> str | None:
        """A method of a scaler, or `super().__init__` of a class with a base in torch."""
        func = call.func
        assert isinstance(func, ast.Attribute)
        if func.attr == "__init__" and isinstance(func.value, ast.Call) and syntax.last(func.value.func) == "super":
            cls = self.review.after.class_around(scope)
            if cls is None or len(cls.node.bases) != 1:
                return None
            return self.review.after.dotted(cls.scope.parent or cls.scope, cls.node.bases[0])
        if func.attr == "update" and call.args:
            makers = self.review.values_after.makers(scope, func.value)
            if makers is not None and makers <= set(SCALER):
                return f"{SCALER[0]}.update"
            if makers is None and "scaler" in syntax.text(func.value).lower():
                return f"{SCALER[0]}.update"
        return None

    def _torch_call(self, module: Module, call: ast.Call, name: str, arguments: ast.arguments) -> Doubt | None:
        text = ALIASES.get(name, name)
        takes = _without_self(arguments) if text.startswith(f"{SCALER[0]}.") else arguments
        expanded = self._expanded(module, call)
        wrong = misfit(takes, expanded, 0)
        if wrong is not None and not self._wrong_before(module, call):
            stays = syntax.text(call.func) == text
            shown = f"{text} runs in more cases now" if stays else f"{syntax.text(call.func)}: this is {text} now"
            shown += f", and {wrong}"
            return self._doubt(module, call, text, shown)
        for parameter, value in _filled(takes, expanded).items():
            complaint = self._value(module, text, parameter, value)
            if complaint is not None:
                message, verdict = complaint
                return self.review.doubt(module, call, "AMP132", text, message, verdict)
        return None

    def _doubt(self, module: Module, call: ast.Call, name: str, message: str) -> Doubt | None:
        """At the call; for one in a file that does not change, where the file that does binds the name."""
        if module.path in self.review.changes:
            return self.review.doubt(module, call, "AMP132", name, message)
        for change in self.review.changes.values():
            for node in change.after.top.bindings.get(syntax.last(call.func), ()):
                if change.changed(node):
                    where = f"{message} ({module.path}:{call.lineno})"
                    return self.review.doubt(change.after, node, "AMP132", name, where)
        return None

    def _wrong_before(self, module: Module, call: ast.Call) -> bool:
        """Whether Apex's counterpart raised, too, for a keyword that it does not know."""
        change = self.review.changes.get(module.path)
        old = change.was(module.statement(call)) if change is not None else None
        if change is None or old is None:
            return False
        for node in own_part(old):
            if isinstance(node, ast.Call):
                name = self.review.before.dotted(change.before.scope_of(node), node.func) or ""
                takes = STRICT.get(name.rpartition(".")[2]) if name.startswith("apex") else None
                if takes is not None and any(k.arg is not None and k.arg not in takes.split() for k in node.keywords):
                    return True
        return False

    def _expanded(self, module: Module, call: ast.Call) -> ast.Call:
        """The call with the content of `**name` written out, where a literal says what that is."""
        keywords: list[ast.keyword] = []
        for keyword in call.keywords:
            literal = None
            if keyword.arg is None:
                origins = self.review.values_after.of(module, keyword.value)
                nodes = [o.node for o in origins]
                literal = nodes[0] if len(nodes) == 1 else None
            if isinstance(literal, ast.Dict) and all(isinstance(k, ast.Constant) for k in literal.keys):
                for key, value in zip(literal.keys, literal.values, strict=True):
                    assert isinstance(key, ast.Constant)
                    keywords.append(ast.keyword(str(key.value), value))
                keywords.append(keyword)  # more may have been put into it since
            else:
                keywords.append(keyword)
        return ast.copy_location(ast.Call(call.func, call.args, keywords), call)

    def _value(self, module: Module, name: str, parameter: str, value: ast.expr) -> tuple[str, Verdict] | None:
        """What is wrong with the type of an argument, where torch insists on one."""
        scope, shown = module.scope_of(value), f"{parameter}={syntax.text(value)}"
        if name in ("torch.autocast", "torch.cuda.amp.autocast") and parameter == "enabled":
            kinds = self.kinds.of_some_run(scope, value)
            if kinds is not None and not kinds <= BOOL:
                return f"{shown} may be {_named(kinds - BOOL)}: autocast takes a bool", "refuse"
        elif name in SCALER and parameter == "enabled":
            kinds = self.kinds.of_some_run(scope, value)
            if kinds is not None and not kinds <= BOOL and self._asked(module):
                return (
                    f"{shown} may be {_named(kinds - BOOL)}: is_enabled() gives that back, and autocast takes a bool",
                    "refuse",
                )
        elif name == f"{SCALER[0]}.update":
            kinds = self.kinds.useful(scope, value)
            if kinds is not None and not kinds <= FLOAT | NONE:
                return f"{shown} may be {_named(kinds - FLOAT - NONE)}: update() takes a float", "refuse"
            if kinds is None and (entry := self.kinds.loaded(scope, value)) is not None:
                text = syntax.text(entry)
                return f"{text} may be an int, and update() takes a float: nothing in sight says what it is", "refuse"
        elif name in SCALER and parameter in NUMBERS:
            kinds = (self.kinds.of(scope, value) or BOOL) & (STR | NONE)
            if kinds:
                return f"{shown} may be {_named(kinds)}", "refuse"
        elif (name, parameter) in DEVICE_TYPES:
            kinds = self.kinds.of(scope, value)
            if kinds is not None and not kinds & STR:
                return f"{shown} is {_named(kinds)}: a str is wanted", "refuse"
        return None

    def _asked(self, module: Module) -> bool:
        """Whether a region near a scaler asks it whether it is enabled."""
        files = [module, *(change.after for change in self.review.changes.values())]
        return any("autocast" in m.words and "is_enabled" in m.words for m in files)

    def _decorators(self, change: Change) -> Iterator[Doubt]:
        for function in change.after.functions:
            for decorator in function.node.decorator_list:
                if isinstance(decorator, ast.Call) or not isinstance(decorator, (ast.Name, ast.Attribute)):
                    continue
                name = self.review.after.dotted(function.scope.parent or function.scope, decorator)
                if name in ("torch.amp.custom_fwd", "torch.amp.custom_bwd", "torch.autocast", "torch.amp.autocast"):
                    if change.changed(function.node):
                        message = f"@{syntax.text(decorator)} needs its device_type"
                        yield self.review.doubt(change.after, function.node, "AMP132", name, message)

    # -- what only Apex has ----------------------------------------------------------------------------------------

    def lost_arguments(self) -> Iterator[Doubt]:
        for change in self.review.changes.values():
            if not any(name in change.before.text for name in APEX_ONLY):
                continue
            for call in change.before.calls():
                last = (self.review.before.dotted(change.before.scope_of(call), call.func) or "").rpartition(".")
                meaning = APEX_ONLY.get(last[2]) if last[0].startswith("apex") else None
                if meaning is None:
                    continue
                still, names = self._still_given(change, call), POSITIONS.get(last[2], {})
                given = [ast.keyword(names[i], value) for i, value in enumerate(call.args) if i in names]
                for keyword in (*call.keywords, *given):
                    if keyword.arg not in meaning or (keyword.arg, syntax.text(keyword.value)) in still:
                        continue
                    if keyword.arg != "max_grad_norm" or not self._clipped(self._limits(change.before, keyword.value)):
                        yield from self._lost(change, call, last[2], keyword, meaning[keyword.arg])

    def _still_given(self, change: Change, call: ast.Call) -> set[tuple[str, str]]:
        """The arguments with which what a statement called of Apex's is called of it after the migration, too."""
        new = change.back.get(change.before.statement(call))
        names = POSITIONS.get(syntax.last(call.func), {})
        found: set[tuple[str, str]] = set()
        for node in own_part(new) if new is not None else ():
            if isinstance(node, ast.Call) and syntax.text(node.func) == syntax.text(call.func):
                if (self.review.after.dotted(change.after.scope_of(node), node.func) or "").startswith("apex"):
                    found |= {(k.arg, syntax.text(k.value)) for k in node.keywords if k.arg is not None}
                    found |= {(names[i], syntax.text(value)) for i, value in enumerate(node.args) if i in names}
        return found

    def _limits(self, module: Module, limit: ast.expr, depth: int = 3) -> set[str]:
        """How a limit reads where it is given, and of a parameter where the calls of its function give it."""
        found = {syntax.text(limit)}
        function = module.function_around(limit)
        if function is not None and isinstance(limit, ast.Name) and depth:
            program = self.review.before
            for where, call in program.callers(function):
                given = program.arguments(function, call)
                value = (given or {}).get(limit.id) or function.defaults.get(limit.id)
                found |= self._limits(where, value, depth - 1) if value is not None else set()
        return found

    def _clipped(self, limits: set[str]) -> bool:
        """Whether gradients are clipped to a limit, however that reads, where they were not before: what a step did inside stands
        beside it."""
        return any(
            syntax.last(call.func) == "clip_grad_norm_" and change.changed(change.after.statement(call))
            for change in self.review.changes.values()
            for call in change.after.calls()
            if any(syntax.text(a) in limits for a in call.args[1:2])
        )

    def _lost(
        self, change: Change, call: ast.Call, name: str, keyword: ast.keyword, nothing: tuple[object, ...]
    ) -> Iterator[Doubt]:
        constants = self.review.values_before.constants(change.before.scope_of(call), keyword.value)
        if constants is not None and all(c in nothing for c in constants):
            return
        message = f"{keyword.arg}={syntax.text(keyword.value)} means something to Apex's {name}, and torch has nothing like it"
        verdict: Verdict = "refuse" if constants is not None else "review"
        yield Doubt(change.path, call.lineno, "AMP132", name, message, verdict, ("AMP612", "AMP621", "AMP622"))


def own_part(stmt: ast.stmt) -> Sequence[ast.AST]:
    """The nodes of a statement, not those of the statements in it."""
    if not hasattr(stmt, "handlers"):
        return syntax.own_line(stmt)
    found: list[ast.AST] = []
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += [c for c in syntax.children(node) if not isinstance(c, ast.stmt)]
    return found


def _optional(a: ast.arguments | None) -> ast.arguments:
    """A signature of which a part is given later."""
    assert a is not None
    nothing: list[ast.expr] = [ast.Constant(None) for _ in (*a.posonlyargs, *a.args)]
    return ast.arguments(
        a.posonlyargs, a.args, a.vararg, a.kwonlyargs, [ast.Constant(None)] * len(a.kwonlyargs), a.kwarg, nothing
    )


def _without_self(a: ast.arguments) -> ast.arguments:
    return ast.arguments(a.posonlyargs, a.args[1:], a.vararg, a.kwonlyargs, a.kw_defaults, a.kwarg, a.defaults)


def _filled(a: ast.arguments, call: ast.Call) -> dict[str, ast.expr]:
    if any(isinstance(x, ast.Starred) for x in call.args):
        return {k.arg: k.value for k in call.keywords if k.arg is not None}
    filled = dict(zip([p.arg for p in (*a.posonlyargs, *a.args)], call.args, strict=False))
    return filled | {k.arg: k.value for k in call.keywords if k.arg is not None}


def _named(kinds: Kinds) -> str:
    return " or ".join("None" if k == "NoneType" else f"a {k}" for k in sorted(kinds))
