"""A setting that goes where the scaler goes: what a step must know, and only the place that creates the scaler can tell.

It is made beside the scaler and handed along with it, in a parameter after the scaler's or an attribute next to it. No code
of its own in the report: AMP114, AMP117 and AMP220 speak of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.scaler.handover import ScalerPlan
from amp_migrate.reading.scaler.home import Home
from amp_migrate.reading.scaler.process_wide import ProcessWide
from amp_migrate.reading.units.legacy import LegacyInit
from amp_migrate.reading.units.naming import free
from amp_migrate.reading.units.unit import Blocked, Step
from amp_migrate.rules.migration import Migration


class Conflict(Exception):
    """One scope creates the scaler with different values of the setting."""


class CarriedSetting(ScalerPlan):
    """The homes and paths of a setting, which are those of a scaler."""

    def __init__(self, m: Migration, scaler: ScalerPlan, name: str, what: str, value: Callable[[Home], str]) -> None:
        names = (name, f"static_{name}", f"initial_{name}", f"amp_{name}", f"native_{name}")
        suffix = scaler.base_name.removeprefix(m.stem)
        super().__init__(m.unit, free(m.unit, [f"{n}{suffix}" for n in names]), scaler.optimizer)
        self.what = what
        self.may_be_off = False
        self.passed_by = scaler.passed_by
        self.homes = scaler.homes
        self.keepers = set(scaler.settled)
        self.wide = scaler if isinstance(scaler, ProcessWide) else None
        self.values = [(home, value(home)) for home in scaler.homes]
        found: dict[ast.AST, str] = {}
        for home, text in self.values:
            if found.setdefault(home.scope.node, text) != text:
                raise Conflict
            # What `amp.initialize` was given has a variable above the branch, too.
            own = home.above is None or (name == "loss_scale" and not isinstance(home.init, LegacyInit))
            if self.wide is None and home.kind != "self" and not home.carrier and own and _is_variable(text):
                self.names[home.scope] = text

    def at(self, module: Module, node: ast.AST, optimizer: ast.expr | None = None) -> str:
        if self.wide is not None:
            return self.wide.written(module, self.base_name)
        return super().at(module, node, optimizer)

    def target(self, home: Home) -> str:
        return self.wide.written(home.init.module, self.base_name) if self.wide is not None else super().target(home)

    def keep(self, m: Migration) -> None:
        """Write it down beside the scaler, where no variable holds it yet."""
        done: set[tuple[ast.AST, str]] = set()
        for home, value in self.values:
            target = self.target(home)
            if value == target or (home.scope.node, target) in done:
                continue
            done.add((home.scope.node, target))
            m.create(home, [f"{target} = {value}"], [f"{target} = None"])
        for module, stmt, holder in m.until_then:
            m.edit(module).insert_after(stmt, f"{holder}.{self.base_name} = None")


def handed(
    m: Migration, module: Module, stmt: ast.stmt, step: Step, name: str, what: str, value: Callable[[Home], str]
) -> str:
    """A setting as it reads at a step, made beside the step's scaler and handed along with it.

    Raises Blocked where it cannot be handed there, Conflict where a scope that creates the scaler has several values.
    """
    plan = m.scaler_of(module, step.optimizer)
    setting = m.held.get((plan, name)) or CarriedSetting(m, plan, name, what, value)
    saved = setting.snapshot()
    try:
        text = setting.at(module, stmt, None if step.within is not None or step.passed else step.optimizer)
    except Blocked:
        setting.restore(saved)  # another step may have it all the same
        raise
    m.held[plan, name] = setting
    return text


def _is_variable(text: str) -> bool:
    return isinstance(ast.parse(text, mode="eval").body, (ast.Name, ast.Attribute, ast.Subscript))
