"""Calls that hand a model to what runs it: a library's function, one that a user hands in, one chosen elsewhere."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.sites.forwards import Forward
from amp_migrate.audit.values.names import last_name
from amp_migrate.audit.values.origins import in_order

if TYPE_CHECKING:
    from amp_migrate.audit.mixed import Mixed

# Packages whose functions run no model of the program's, or are known to the other checks.
KNOWN = frozenset("torch apex numpy np sklearn os sys json logging copy math random tqdm wandb horovod".split())
OF_TORCH = frozenset({"update_bn"})  # but for these: torch.optim.swa_utils.update_bn(loader, model)
RUNS = frozenset(
    "predict prediction predictions evaluate evaluation eval test validate validation valid infer inference generate "
    "benchmark export visualize visualise".split()
)
MAKES = frozenset("setup save gen get add build create make set unwrap load register log init prepare".split())

RUNNERS = frozenset("evaluator predictor tester validator".split())  # objects that run the model they are made with
# Who runs the model that they are given for what its batch normalization averages.
STATISTICS = frozenset({"PreciseBN", "update_bn_stats"})
# Who takes the precision of what it runs as an option.
IGNITE = ("ignite.engine.create_supervised_evaluator", "ignite.engine.engine.create_supervised_evaluator")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
MODELS = ("model", "net", "network")  # how a parameter is called that is given one


def evaluates(name: str) -> bool:
    """Whether a function's name says that it runs the model it is given, or makes what does."""
    words = _WORD.sub("_", name).lower().split("_")
    return name in STATISTICS or words[-1] in RUNNERS or (bool(RUNS & set(words)) and words[0] not in MAKES)


def runs_it(name: str) -> bool:
    """Whether a function's name says that it runs the model itself, and evaluates: `inference_on_dataset`, no class."""
    return name.islower() and evaluates(name) and bool(RUNS - {"export"} & set(name.split("_")))


def chosen(both: Mixed, module: Module, call: ast.Call) -> list[Forward]:
    """The calls of models in what a call runs, where that was chosen elsewhere among the program's functions, one of which
    calls a parameter that is given a model here: `run_batch(args, model, batch)`, or is a method of an object."""
    names = both.start | both.network_names
    found: list[Forward] = []
    for origin in in_order(both.review.values_before.origins(module.scope_of(call), call.func)):
        one = next((f for f in origin.module.functions if f.node is origin.node and not origin.path), None)
        given = both.review.before.arguments(one, call) if one is not None else None
        called = {p for p, value in (given or {}).items() if last_name(value) in names}
        found += [
            f
            for f in (both.before.forwards.of(one.module) if one is not None and called else ())
            if isinstance(f.model, ast.Name) and f.model.id in called and one is f.module.function_around(f.call)
        ]
    return found


def handed_in(both: Mixed, module: Module, call: ast.Call) -> bool:
    """Whether a call runs a function that is not seen, as a user hands it in or some table holds it, which gives a loss or
    evaluates: `loss = self.model_fn(x, model)`."""
    stmt = module.statement(call)
    target = syntax.text(stmt.targets[0]).lower() if isinstance(stmt, ast.Assign) and stmt.value is call else ""
    name = last_name(call.func) or ""
    if "loss" not in target and "forward" not in name.lower() and not evaluates(name):
        return False
    origins = both.review.values_before.origins(module.scope_of(call), call.func)
    none = [o for o in origins if isinstance(o.node, ast.Constant) and o.node.value is None]
    return len(none) < len(origins) and all(o.kind in ("parameter", "unknown") for o in origins if o not in none)


def runs_beside(both: Mixed, module: Module, call: ast.Call) -> bool:
    """Whether what a call gives is what the other branch has from a forward: `out = run_on_all(model, batch)`, and in the
    `else`, `out = model(batch)`; or each is returned."""
    stmt = module.statement(call)
    targets = {syntax.text(t) for t in stmt.targets} if isinstance(stmt, ast.Assign) else set[str]()
    if not targets and not isinstance(stmt, ast.Return):
        return False
    below: ast.AST = stmt
    for around in module.ancestors(stmt):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(around, ast.If):
            other = around.orelse if below in around.body else around.body
            if not other and not targets:
                block = module.beside(around)[1]
                other = [s for s in block if s is not around]
            for forward in both.before.forwards.of(module):
                there = module.statement(forward.call)
                if not any(there is n for s in other for n in syntax.walk(s)):
                    continue
                given = {syntax.text(t) for t in there.targets} if isinstance(there, ast.Assign) else set[str]()
                if targets & given or (not targets and isinstance(there, ast.Return)):
                    return True
        below = around
    return False
