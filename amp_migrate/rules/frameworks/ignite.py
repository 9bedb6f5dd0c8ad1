"""Ignite: `create_supervised_trainer(..., amp_mode="apex")` becomes `amp_mode="amp", scaler=True`; initialize goes.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://docs.pytorch.org/ignite/generated/ignite.engine.create_supervised_trainer.html
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import argument, literal
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.units.unit import Blocked, Unit
from amp_migrate.rules.frameworks.calls import belongs_to, calls_of, change_call, keywords, quoted
from amp_migrate.rules.migration import Migration, Output

APEX = "https://nvidia.github.io/apex/amp.html#apex.amp.initialize"
NATIVE = "https://docs.pytorch.org/ignite/generated/ignite.engine.create_supervised_trainer.html"

CODES = (
    Code(
        "AMP805",
        'Ignite\'s amp_mode="apex" becomes amp_mode="amp" with a scaler',
        "create_supervised_trainer(amp_mode=...)",
        apex="The program calls amp.initialize, the trainer scales the loss with apex.amp.scale_loss.",
        native='amp_mode="amp" runs the forward under torch.autocast; scaler=True makes a GradScaler and keeps it in '
        "trainer.state.scaler, from where it can be saved and loaded. Evaluators take amp_mode too.",
        why="Without scaler the gradients of float16 operations can underflow: amp_mode alone is not what Apex did.",
        links=(APEX, NATIVE),
        examples=(
            Example(
                "import torch\nfrom apex import amp\nfrom ignite.engine import create_supervised_trainer\n\n"
                "model = torch.nn.Linear(4, 2).cuda()\n"
                "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
                'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
                'trainer = create_supervised_trainer(model, optimizer, torch.nn.MSELoss(), amp_mode="apex")\n',
                "import torch\nfrom ignite.engine import create_supervised_trainer\n\n"
                "model = torch.nn.Linear(4, 2).cuda()\n"
                "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
                'trainer = create_supervised_trainer(model, optimizer, torch.nn.MSELoss(), amp_mode="amp", scaler=True)\n',
            ),
        ),
    ),
)

TRAINER = re.compile(r"ignite\.engine\.(?:\w+\.)*create_supervised_trainer")
EVALUATOR = re.compile(r"ignite\.engine\.(?:\w+\.)*create_supervised_evaluator")
STEP = re.compile(r"ignite\.engine\.(?:\w+\.)*supervised_training_step_apex")


def unit(m: Migration) -> bool:
    """Migrate a unit whose losses are scaled by an Ignite trainer; False where there is none, or another loss."""
    trainers = [] if m.unit.losses else _trainers(m.unit)
    if not trainers:
        return False
    (init, *more) = m.unit.inits
    module, trainer = trainers[0]
    reason = _reason(m)
    if more or len(trainers) > 1 or m.unit.sites:
        reason = "more than one initialize or trainer, or other uses of amp, share this optimizer"
    if reason is not None:
        raise Blocked(
            module,
            trainer,
            "AMP805",
            'amp_mode="apex"',
            f'{reason}: write amp_mode="amp", scaler=True and drop initialize',
        )
    m.edit(init.module).delete(init.stmt)
    m.output.done(init.module, init.call, "AMP805", "amp.initialize", "the trainer's amp_mode takes its place", "look")
    give = {"amp_mode": quoted(module, "amp")}
    if "scaler" not in keywords(trainer):
        give["scaler"] = "True"
    change_call(module, m.output, trainer, give=give)
    where = 'amp_mode="amp" with scaler=True: autocast with a GradScaler, kept in trainer.state.scaler'
    m.output.done(module, trainer, "AMP805", 'amp_mode="apex"', where, "look")
    if m.options.eval == "autocast":
        _evaluators(m)
    return True


def _trainers(unit: Unit) -> list[tuple[Module, ast.Call]]:
    """Trainers with Apex that step one of the unit's optimizers."""
    found = []
    for module in unit.project.modules:
        if "amp_mode" not in module.text:
            continue
        for call, _ in calls_of(unit.project, module, TRAINER):
            mode = keywords(call).get("amp_mode")
            optimizer = argument(call, 1, "optimizer")
            slot = unit.project.slot(module, optimizer) if optimizer is not None else None
            if mode is not None and literal(mode.value) == "apex" and slot in unit.optimizer_slots:
                found.append((module, call))
    return found


def _reason(m: Migration) -> str | None:
    init = m.unit.inits[0]
    stmt = init.stmt
    names = [init.module.source(x) for x in (*init.models, *init.optimizers)]
    targets = [init.module.source(x) for x in (*init.model_targets, *init.optimizer_targets)]
    if not isinstance(stmt, (ast.Assign, ast.Expr)) or stmt.value is not init.call or (targets and targets != names):
        return "initialize is part of another expression"
    if m.options.dtype != "float16":
        return "Ignite's amp_mode computes in float16"
    if init.only("loss_scale") not in (None, "dynamic"):
        return "a static loss scale needs a GradScaler of its own"
    if init.only("opt_level") not in (None, "O1", "O2", "O3") or m.switch.read_in(init.site.scope) != "True":
        return "mixed precision is not always on"
    return None


def _evaluators(m: Migration) -> None:
    for module in m.project.modules:
        if "create_supervised_evaluator" not in module.text:
            continue
        for call, _ in calls_of(m.project, module, EVALUATOR):
            model = argument(call, 0, "model")
            slot = m.project.slot(module, model) if model is not None else None
            if slot in m.unit.model_slots and "amp_mode" not in keywords(call) and len(call.args) < 7:
                change_call(module, m.output, call, give={"amp_mode": quoted(module, "amp")})
                m.output.done(
                    module,
                    call,
                    "AMP805",
                    "create_supervised_evaluator",
                    "Apex ran evaluation in mixed precision too",
                    "look",
                )


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Report what is left: trainers whose initialize is not in sight, and the training step made for Apex."""
    if "ignite" not in module.text or belongs_to(module, "ignite"):
        return
    edits = output.edit(module)
    known = {f.line for f in output.findings.get(module, ()) if f.code == "AMP805"}
    for call, _ in (*calls_of(project, module, TRAINER), *calls_of(project, module, EVALUATOR)):
        mode = keywords(call).get("amp_mode")
        if mode is None or call.lineno in known or edits.gone(mode):
            continue
        if any(isinstance(n, ast.Constant) and n.value == "apex" for n in walk(mode.value)):
            output.manual(
                module,
                mode,
                "AMP805",
                'amp_mode="apex"',
                'write amp_mode="amp", scaler=True and drop amp.initialize, which is not in sight or not only for this trainer',
            )
    for call, _ in calls_of(project, module, STEP):
        output.manual(
            module,
            call,
            "AMP805",
            "supervised_training_step_apex",
            'use supervised_training_step_amp with scaler=torch.amp.GradScaler("cuda"), and drop amp.initialize',
        )
