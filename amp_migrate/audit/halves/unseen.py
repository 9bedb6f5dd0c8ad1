"""What may run in a region though no way from one to it is seen: networks out of registries, losses out of factories."""

from __future__ import annotations

import ast
from collections.abc import Set
from functools import cached_property

from amp_migrate.audit.dtypes import IN_PLACE
from amp_migrate.audit.halves.called import kept
from amp_migrate.audit.halves.follow import Halves
from amp_migrate.audit.halves.tensors import NOT_TOLD, Value
from amp_migrate.audit.kept import kept_meanwhile
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Function, Module
from amp_migrate.audit.sites.mentioned import in_runs
from amp_migrate.audit.sites.one_run import in_one_run
from amp_migrate.audit.sites.seen_runs import seen_runs
from amp_migrate.audit.values.names import last_name

HOOK = "register_forward_hook"


class Unseen:
    """Follows it as what runs in a region, as far as the program mentions it."""

    def __init__(self, halves: Halves) -> None:
        self.halves = halves
        self.program = halves.program
        self.after = halves.both.after
        self.mentioned = in_runs(halves.both)

    def networks(self, words: Set[str] | None = None) -> None:
        """Follow what networks compute whose way from a region is not seen: registered ones, parts made by libraries, and
        what a region runs of one by a method's name; with `words`, those of files that have one of them, or assign by index."""
        after = self.after
        every = (f for m in after.modules if "autocast" in m.words for f in after.forwards.of(m))
        unseen = (f for f in every if after.regions.nearest(f.module, f.call) and not after.forwards.runs(f))
        run = {"forward", *(last_name(f.call.func) or "" for f in unseen)}
        self.halves.unseen = True
        for module in after.modules:
            if words is not None and module.words.isdisjoint(words) and not _stores(module):
                continue
            for cls in module.classes:
                if not run.isdisjoint(cls.methods) and self.program.is_network(cls) and self.mentioned.cls(cls):
                    for name in sorted(run & cls.methods.keys() - self._outside(cls)):
                        for function in cls.methods[name]:
                            self.halves.run_in_region(function)
        self.halves.unseen = False

    def _outside(self, cls: Class) -> set[str]:
        """The forward of a network, where no call that runs one stands in a region, nor in what may run in one."""
        runs = seen_runs(self.program, cls)
        if runs is None or any(self._runs_inside(*run) for run in runs):
            return set()
        return {"forward"}

    def _runs_inside(self, module: Module, call: ast.Call) -> bool:
        region, caller = self.after.regions.nearest(module, call), module.function_around(call)
        return not region.off if region is not None else caller is not None and self._may_be_inside(caller)

    def hooks(self) -> None:
        """Follow what is run behind layers, with what these may give in a region."""
        self.halves.unseen = True
        for module in self.after.modules:
            for call in module.calls() if HOOK in module.words else ():
                if last_name(call.func) != HOOK or not call.args or not in_one_run(self.halves.both, module, call):
                    continue
                scope = module.scope_of(call)
                named = self.program.definitions(scope, call.args[0], guess=False)
                for hook in {*(d for d in named if isinstance(d, Function)), *kept(self.halves, scope, call.args[0])}:
                    given = hook.parameters[hook.bound :]
                    if len(given) > 2 and self.mentioned.definition(hook.qualname):
                        self.halves.run_in_region(hook, env={given[2].arg: Value("maybe", "maybe")})
        self.halves.unseen = False

    def products_in_place(self) -> None:
        """Follow what has a product in place: losses out of a factory or a list, distances that these compute."""
        self.halves.unseen = True
        seen = self.halves.followed_inside()
        for module in self.after.modules:
            for function in module.functions if not module.words.isdisjoint(IN_PLACE) else ():
                if function in seen:
                    continue
                if not any(last_name(c.func) in IN_PLACE for c in syntax.own(function.node, ast.Call)):
                    continue
                if self.mentioned.definition((function.owner or function).qualname) and self._may_be_inside(function):
                    given = {p.arg: Value("?", "maybe") for p in function.parameters[function.bound :]}
                    self.halves.call(function, given, True, NOT_TOLD)
        self.halves.unseen = False

    @kept_meanwhile(lambda: False)
    def _may_be_inside(self, function: Function) -> bool:
        """Whether a function is called in a region, or by what is; of one that nothing in sight calls, whether a region calls
        something by its name, or it is handed on."""
        called = [*self.program.callers(function), *self.after.forwards.callers(function)]
        if any(self._runs_inside(module, call) for module, call in called):
            return True
        handed_on = not called and any(self.program.mentions(function))
        return not called and (handed_on or function.name in self._called_inside)

    @cached_property
    def _called_inside(self) -> frozenset[str]:
        """What regions call, by its last name; an object runs its `__call__`, and a network its `forward`."""
        modules = (m for m in self.after.modules if "autocast" in m.words)
        calls = ((m, c) for m in modules for c in m.calls() if self.after.regions.nearest(m, c) is not None)
        return frozenset({"forward", "__call__", *(last_name(c.func) or "" for _, c in calls)})


def _stores(module: Module) -> bool:
    """Whether a file assigns to places that are not written out: `x[mask] = y`, `x[rows, 0] = y`."""
    plain = (ast.Constant, ast.Slice, ast.JoinedStr)
    return any(
        isinstance(n.ctx, ast.Store) and not isinstance(n.slice, plain)
        for n in syntax.every(module.tree, ast.Subscript)
    )
