"""TorchScript: what `torch.jit` has compiled calls torch's operations, and none of the functions of Python that O1 patched."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.values.origins import Origin
from amp_migrate.audit.values.values import Values
from amp_migrate.audit.ways.chains import Chain

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

TRACING = frozenset({"torch.jit.trace", "torch.jit.trace_module"})  # write down the casts that stand there by then
COMPILING = TRACING | {f"torch.jit.{name}" for name in ("load", "script", "freeze", "optimize_for_inference")}
WHY = "it is TorchScript, which calls none of the functions of Python that O1 patched"


class Compiled:
    """Which forwards of the program before a migration run TorchScript."""

    def __init__(self, both: Mixed) -> None:
        self.both = both
        self.program = both.review.before

    @cached_property
    def _any(self) -> bool:
        """Whether the program compiles anything."""
        return bool(self.program.having("jit"))

    @cached_property
    def _values(self) -> Values:
        """Answers to which what is compiled is another object than what it is compiled from."""
        return Values(self.program, COMPILING)

    def forwards(self) -> Iterator[Forward]:
        """The forwards that run it on some way."""
        for module in self.both.near if self._any else ():
            for forward in self.both.before.forwards.of(module):
                if any(self.runs(forward, old) for _, old in self.both.ways(forward)):
                    yield forward

    def runs(self, forward: Forward, chain: Chain) -> bool:
        """Whether a forward runs TorchScript on a way to it, whatever else it runs on others."""
        if not self._any:
            return False
        predicates = self.both.before.predicates
        model, there = predicates.trails.end(forward.model, predicates.places(chain)[-1])
        origins = {
            o for o in self._values.origins(there.scope, model) if o.kind != "constant"
        }  # None, until it is made
        return bool(origins) and all(self._is_compiled(o, forward.runs) for o in origins)

    def _is_compiled(self, origin: Origin, method: str) -> bool:
        if not isinstance(origin.node, ast.Call):
            return False
        maker = self._values.maker(origin)
        if maker in TRACING:
            return self.both.made_before(origin.module, origin.node)
        return maker in COMPILING or any(self._script_method(cls, method) for cls in self._values.made(origin))

    def _script_method(self, cls: Class, method: str) -> bool:
        """Whether a class compiles a method of its own: `@torch.jit.script_method`."""
        found = self.program._method(cls, method)
        return bool(found) and all(any(syntax.last(d) == "script_method" for d in f.node.decorator_list) for f in found)
