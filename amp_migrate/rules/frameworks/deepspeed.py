"""DeepSpeed: the section `"amp": {"enabled": true, "opt_level": "O1"}` becomes `"torch_autocast"`, at O2 `"fp16"`.

Apex: https://www.deepspeed.ai/docs/config-json/#automatic-mixed-precision-amp-training-options
Native: https://deepspeed.readthedocs.io/en/latest/training.html#pytorch-automatic-mixed-precision-amp
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from amp_migrate.findings import Code, Example
from amp_migrate.options import Options
from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.rules.frameworks.calls import quoted
from amp_migrate.rules.migration import Output

APEX = "https://www.deepspeed.ai/docs/config-json/#automatic-mixed-precision-amp-training-options"
NATIVE = "https://deepspeed.readthedocs.io/en/latest/training.html#pytorch-automatic-mixed-precision-amp"
FP16 = "https://www.deepspeed.ai/docs/config-json/#fp16-training-options"

CODES = (
    Code(
        "AMP804",
        'DeepSpeed runs Apex in its section "amp"',
        '"amp": {...}',
        apex="All entries but enabled go to apex.amp.initialize.",
        native='"torch_autocast" (DeepSpeed 0.17.2 and later) keeps float32 weights and casts operations, as O1 did. '
        '"fp16" keeps float16 weights beside float32 masters, as O2 did; its window and hysteresis are set to those of '
        "Apex's scaler.",
        why="The sections exclude each other, so one takes the place of the other. O1 and O2 are not the same: which of "
        "the two was meant is what the level says.",
        links=(APEX, NATIVE, FP16),
        examples=(
            Example(
                'config = {"train_batch_size": 8, "amp": {"enabled": True, "opt_level": "O1"}}\n',
                'config = {"train_batch_size": 8, "torch_autocast": {"enabled": True, "dtype": "float16"}}\n',
            ),
        ),
    ),
)

# Keys that tell a DeepSpeed configuration from any other dictionary with an entry "amp".
SIBLINGS = frozenset(
    (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "zero_optimization",
        "steps_per_print",
        "wall_clock_breakdown",
        "gradient_clipping",
        "activation_checkpointing",
    )
)
OTHERS = ("fp16", "bf16", "torch_autocast")
IGNORED = frozenset(("enabled", "opt_level", "loss_scale", "verbosity", "min_loss_scale", "num_losses"))


@dataclass(frozen=True)
class Section:
    """What takes the place of the section: its name, and its entries beside `enabled`."""

    name: str
    entries: Mapping[str, object]


def section(amp: Mapping[str, object], config: Mapping[str, object], dtype: str) -> Section | str:
    """The native section for an Apex one, or why there is none. Ellipsis stands for values that are computed."""
    for other in OTHERS:
        given = config.get(other)
        off = isinstance(given, Mapping) and given.get("enabled", False) is False
        if given is not None and not off:
            return f'"{other}" is set too, and DeepSpeed takes only one of them: keep that one and delete "amp"'
    level = amp.get("opt_level", "O1")
    unknown = set(amp) - IGNORED
    scale = amp.get("loss_scale", "dynamic")
    if amp.get("enabled") in ("auto", None):
        return 'delete the section and set "torch_autocast" or "fp16" as the program wants'
    if unknown:
        return f'"{min(unknown)}" has no counterpart: decide without it, then use "torch_autocast" (O1) or "fp16" (O2)'
    if level is ...:
        return 'opt_level is computed: at O1 "torch_autocast" takes its place, at O2 "fp16", and O0 is training without either'
    if level == "O1" or dtype == "bfloat16":
        if level not in ("O1", "O2") or (dtype == "float16" and scale != "dynamic"):
            return '"torch_autocast" takes no loss scale: use "fp16" with "loss_scale", or leave the scale dynamic'
        if "torch_autocast" in config:
            return '"torch_autocast" stands there already: enable it and delete "amp"'
        return Section("torch_autocast", {"dtype": dtype})
    if level != "O2":
        return f'{level} has no counterpart: O0 is training without the section, "fp16" is nearest to O3'
    if "fp16" in config:
        return '"fp16" stands there already: enable it and delete "amp"'
    entries: dict[str, object] = {}
    if scale == "dynamic":
        entries |= {"loss_scale_window": 2000, "hysteresis": 1}
    elif isinstance(scale, (int, float)):
        entries["loss_scale"] = scale
    else:
        return 'the loss scale is computed: "fp16" takes it as a number in "loss_scale", 0 for dynamic'
    if amp.get("min_loss_scale") is not None:
        entries["min_loss_scale"] = amp["min_loss_scale"]
    return Section("fp16", entries)


def message(new: Section) -> str:
    if new.name == "torch_autocast":
        return '"torch_autocast" takes its place: float32 weights, operations cast as at O1; needs DeepSpeed 0.17.2'
    return '"fp16" takes its place: float16 weights beside float32 masters, as at O2; batch norms are float16 too'


def apply(project: Project, module: Module, options: Options, output: Output) -> None:
    """Rewrite the section in dictionaries of Python code."""
    if '"amp"' not in module.text and "'amp'" not in module.text:
        return
    for key, amp, config in (*_written(module), *_put(module)):
        if not (SIBLINGS & set(config) or "deepspeed" in module.text):
            continue
        entries = _entries(amp)
        if "enabled" not in entries or literal(entries["enabled"]) is False:
            continue
        new: Section | str = "entries are unpacked into it: write them out"
        if None not in amp.keys:
            new = section(
                {k: literal(v) for k, v in entries.items()}, {k: _known(v) for k, v in config.items()}, options.dtype
            )
        if isinstance(new, str):
            output.manual(module, key, "AMP804", '"amp": {...}', new)
            continue
        edits = output.edit(module)
        edits.replace(key, quoted(module, new.name))
        edits.replace(amp, _dictionary(module, amp, entries["enabled"], new))
        output.done(module, key, "AMP804", '"amp": {...}', message(new), "review")


def _written(module: Module) -> Iterator[tuple[ast.expr, ast.Dict, Mapping[str, ast.expr]]]:
    """The key, the section and what else is set beside it, where a dictionary is written with it."""
    for node in module.of(ast.Dict):
        config = _entries(node)
        if isinstance(amp := config.get("amp"), ast.Dict):
            yield next(k for k in node.keys if k is not None and literal(k) == "amp"), amp, config


def _put(module: Module) -> Iterator[tuple[ast.expr, ast.Dict, Mapping[str, ast.expr]]]:
    """The same where the section is put into a dictionary: `config["amp"] = {...}`. What is put beside it may be so in other
    runs."""
    for stmt in module.of(ast.Assign):
        (target, *others), amp = stmt.targets, stmt.value
        if others or not isinstance(target, ast.Subscript) or not isinstance(amp, ast.Dict):
            continue
        if literal(target.slice) == "amp":
            made = single_assignment(module, target.value) if isinstance(target.value, ast.Name) else None
            yield target.slice, amp, _entries(made) if isinstance(made, ast.Dict) else {}


def _entries(node: ast.Dict) -> dict[str, ast.expr]:
    return {str(literal(k)): v for k, v in zip(node.keys, node.values, strict=True) if k is not None}


def _known(node: ast.expr) -> object:
    """A literal, or a dictionary whose computed values are Ellipsis."""
    if isinstance(node, ast.Dict):
        return {k: literal(v) for k, v in _entries(node).items()}
    return literal(node)


def _dictionary(module: Module, old: ast.Dict, enabled: ast.expr, new: Section) -> str:
    """The section in the layout of the one before: on one line, or a line for each entry."""
    pairs = [f"{quoted(module, 'enabled')}: {module.source(enabled)}"]
    for name, value in new.entries.items():
        pairs.append(f"{quoted(module, name)}: {quoted(module, value) if isinstance(value, str) else value}")
    first = old.keys[0]
    assert first is not None, "no entries are unpacked"
    if old.lineno == old.end_lineno or first.lineno == old.lineno:
        return "{" + ", ".join(pairs) + "}"
    inner = module.lines[first.lineno - 1][: first.col_offset].decode()
    outer = module.lines[(old.end_lineno or 1) - 1][: (old.end_col_offset or 1) - 1].decode()
    outer = outer[: len(outer) - len(outer.lstrip())]
    comma = "," if module.verbatim(old).rstrip("} \t\r\n").endswith(",") else ""
    return "{\n" + ",\n".join(inner + p for p in pairs) + f"{comma}\n{outer}}}"
