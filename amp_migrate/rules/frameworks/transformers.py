"""Transformers: `TrainingArguments(half_precision_backend="apex", fp16_opt_level="O1")` loses both, and keeps `fp16`.

Apex: https://huggingface.co/docs/transformers/v4.56.0/en/main_classes/trainer#transformers.TrainingArguments
Native: https://huggingface.co/docs/transformers/main/en/main_classes/trainer#transformers.TrainingArguments
"""

from __future__ import annotations

import ast
import re

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.frameworks.calls import belongs_to, calls_of, change_call, keywords, named_settings
from amp_migrate.rules.migration import Output

APEX = "https://huggingface.co/docs/transformers/v4.56.0/en/main_classes/trainer#transformers.TrainingArguments"
NATIVE = "https://huggingface.co/docs/transformers/main/en/main_classes/trainer#transformers.TrainingArguments"
REMOVAL = "https://github.com/huggingface/transformers/pull/41404"

CODES = (
    Code(
        "AMP803",
        "Transformers chooses Apex with half_precision_backend, fp16_backend and fp16_opt_level",
        "TrainingArguments(fp16_backend=...)",
        apex='fp16=True with the backend "apex" ran apex.amp at fp16_opt_level.',
        native="fp16=True alone is autocast with a GradScaler.",
        why="Transformers 5 took the backend away; a TrainingArguments that is given one stops with a TypeError, and a "
        "script whose options come from HfArgumentParser with an unknown argument. Only Apex read fp16_opt_level.",
        links=(APEX, NATIVE, REMOVAL),
        examples=(
            Example(
                "from transformers import TrainingArguments\n\n"
                'arguments = TrainingArguments("out", fp16=True, fp16_opt_level="O2", half_precision_backend="apex")\n',
                'from transformers import TrainingArguments\n\narguments = TrainingArguments("out", fp16=True)\n',
            ),
        ),
    ),
)

ARGUMENTS = re.compile(r"transformers\.(?:\w+\.)*(?:Seq2Seq)?TrainingArguments")
BACKENDS = ("half_precision_backend", "fp16_backend")
SETTINGS = (*BACKENDS, "fp16_opt_level")


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Rewrite the training arguments; report settings that are given out of their sight."""
    if (
        "transformers" not in module.text
        or not any(name in module.text for name in SETTINGS)
        or belongs_to(module, "transformers")
    ):
        return
    for call in _calls(project, module):
        _arguments(module, call, options, output)
    edits = output.edit(module)
    for node, name in named_settings(module, BACKENDS):
        if not edits.gone(node):
            output.manual(
                module,
                node,
                "AMP803",
                name,
                f"Transformers 5 has no {name}: drop it; fp16=True is autocast with a GradScaler",
            )
    for node in module.of(ast.AnnAssign):
        if isinstance(node.target, ast.Name) and node.target.id in BACKENDS:
            output.manual(
                module,
                node,
                "AMP803",
                node.target.id,
                f"Transformers 5 has no {node.target.id}: drop the field, and what reads it",
            )


def _calls(project: Project, module: Module) -> list[ast.Call]:
    """Calls of the training arguments, and of the project's classes that derive from them."""
    found = [call for call, _ in calls_of(project, module, ARGUMENTS)]
    for call, _ in module.calls:
        cls = project.find_class(module, call.func) if keywords(call).keys() & set(SETTINGS) else None
        if cls is not None and any(
            ARGUMENTS.fullmatch(project.qualify(c.scope.module, base) or "")
            for c in cls.ancestry()
            if isinstance(c.scope.node, ast.ClassDef)
            for base in c.scope.node.bases
        ):
            found.append(call)
    return found


def _arguments(module: Module, call: ast.Call, options: Options, output: Output) -> None:
    named = keywords(call)
    drop = [named[name] for name in SETTINGS if name in named]
    if not drop:
        return
    names = " and ".join(str(d.arg) for d in drop)
    level = literal(named["fp16_opt_level"].value) if "fp16_opt_level" in named else "O1"
    backend = next((literal(named[name].value) for name in BACKENDS if name in named), "auto")
    if level == "O0" and backend == "apex":
        output.manual(
            module, call, "AMP803", "fp16_opt_level", "O0 trained in float32: drop fp16 and the level together"
        )
        return
    if backend == "cpu_amp":
        output.manual(
            module, call, "AMP803", "half_precision_backend", "cpu_amp has gone too: use bf16=True with use_cpu=True"
        )
        return
    give = {}
    if options.dtype == "bfloat16" and literal(named["fp16"].value if "fp16" in named else None) is True:
        drop.append(named["fp16"])
        give["bf16"] = "True"
    change_call(module, output, call, drop=drop, give=give)
    output.done(
        module,
        call,
        "AMP803",
        f"TrainingArguments({drop[0].arg}=...)",
        _told(named, names, backend),
        "look",
    )


def _told(named: dict[str, ast.keyword], names: str, backend: object) -> str:
    """What the settings that go were for."""
    only_apex = set(named) & set(SETTINGS) <= {"fp16_opt_level"} or backend == "apex"
    chose = f"{names} only chose Apex" if only_apex else f"{names} chose between torch's mixed precision and Apex's"
    on = literal(named["fp16"].value) if "fp16" in named else None
    if on is False:
        return f"{chose}; fp16=False stays: training is in float32"
    return f"{chose}; fp16=True alone is autocast with a GradScaler"
