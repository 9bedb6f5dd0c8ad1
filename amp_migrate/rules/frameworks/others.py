"""Frameworks whose Apex settings are reported only: Determined, AllenNLP, VISSL, ClassyVision, ParlAI, and whatever is told
an opt level.

Apex: https://nvidia.github.io/apex/amp.html
Native: https://pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import dotted
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.migration import Output

CODES = (
    Code(
        "AMP809",
        "A framework's setting that chooses Apex",
        "opt_level",
        apex="Frameworks offered Apex under settings of their own.",
        native='Determined: scaler = context.wrap_scaler(torch.amp.GradScaler("cuda")), autocast around the forward, '
        "context.step_optimizer(optimizer, scaler=scaler). AllenNLP 1.1 and later: use_amp in the trainer. VISSL: "
        'AMP_TYPE "pytorch". ClassyVision: amp_args with amp_type "pytorch". ParlAI: --fp16-impl safe.',
        why="What the setting becomes depends on the version of the framework, which its own documentation tells.",
        links=(
            "https://docs.determined.ai/latest/reference/training/api-pytorch-reference.html",
            "https://docs.allennlp.org/main/api/training/gradient_descent_trainer/",
            "https://vissl.readthedocs.io/en/latest/train_modes/train_resource_optimization.html",
            "https://classyvision.ai/api/tasks.html",
        ),
    ),
)


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Report calls that hand a training over to Apex."""
    _levels_handed_on(project, module, output)
    if "configure_apex_amp" not in module.text:
        return
    defined = any("def configure_apex_amp" in m.text for m in project.modules)
    for call, _ in module.calls:
        if not defined and isinstance(call.func, ast.Attribute) and call.func.attr == "configure_apex_amp":
            output.manual(
                module,
                call,
                "AMP809",
                "configure_apex_amp",
                'Determined: create self.scaler = context.wrap_scaler(torch.amp.GradScaler("cuda")) instead, put the '
                "forward under torch.autocast, scale the loss before context.backward, and give scaler=self.scaler to "
                "context.step_optimizer",
            )


def _levels_handed_on(project: Project, module: Module, output: Output) -> None:
    """`model.fit(..., fp16_opt_level="O1")`: a library that sets Apex up itself; Transformers' is a rule of its own."""
    if "fp16_opt_level" not in module.text:
        return
    for call, _ in module.calls:
        if not any(k.arg == "fp16_opt_level" for k in call.keywords) or project.callees(module, call):
            continue
        name = dotted(call.func) or ""
        known = project.find_class(module, call.func) is not None or "Argument" in name or name in ("dict", "replace")
        if not known and not name.startswith("apex."):
            message = (
                f"{name} is out of sight and is told an opt level of Apex: it sets Apex up itself. See what its library takes "
                "now (sentence-transformers: use_amp=True in place of fp16 and fp16_opt_level)"
            )
            output.note(module, call, "AMP809", "fp16_opt_level", message, "review")
