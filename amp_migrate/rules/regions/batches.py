"""Batch classes with a `to` of their own, which O2 and O3 called to cast the model's inputs.

Apex: https://nvidia.github.io/apex/advanced.html#custom-data-batch-types
Native: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

from amp_migrate.findings import Code
from amp_migrate.reading.program.definitions import ClassInfo
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP506",
        "A batch class's own to() is no longer called to cast inputs",
        "amp.initialize",
        apex="O2 and O3 cast the model's inputs: a batch object by calling its to(dtype).",
        native="Autocast casts inside the operations; to() is not called.",
        why="Whatever else that method does (moving to a device, say) no longer happens.",
        links=(
            "https://nvidia.github.io/apex/advanced.html#custom-data-batch-types",
            "https://pytorch.org/docs/stable/amp.html#torch.autocast",
        ),
    ),
)


def apply(m: Migration) -> None:
    if not any(init.only("opt_level") in ("O2", "O3") for init in m.unit.inits):
        return
    for cls in _given(m):
        method = cls.methods["to"]
        m.output.note(
            cls.module,
            method.node,
            "AMP506",
            "amp.initialize",
            f"{cls.name}.to was called by Apex to cast the model's inputs; autocast never calls it",
            "look",
        )


def _given(m: Migration) -> list[ClassInfo]:
    """Classes with a `to` that are no networks: those of the unit's files, and what forwards elsewhere are given."""
    given = {
        cls
        for scope in m.regions.scopes()
        for call, inner in scope.module.calls
        if inner is scope and m.regions.is_forward(scope.module, call)
        for argument in call.args
        for cls in m.project.classes_of(scope.module, argument)
    }
    return [
        cls
        for cls in m.project.classes.values()
        if "to" in cls.methods and not cls.is_module and (cls.module in m.unit.modules or cls in given)
    ]
