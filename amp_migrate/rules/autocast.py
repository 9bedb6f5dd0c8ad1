"""Forward and loss, which Apex ran in mixed precision everywhere, go under `torch.autocast`.

Apex: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
Native: https://pytorch.org/docs/stable/amp.html#torch.autocast
"""

from __future__ import annotations

from amp_migrate.findings import Code, Example
from amp_migrate.rules.migration import Migration

NATIVE = "https://pytorch.org/docs/stable/amp.html#torch.autocast"

CODES = (
    Code(
        "AMP501",
        "Forward and loss run under autocast",
        "torch.autocast",
        apex="O1 patches torch for the whole process, evaluation included.",
        native="Only code inside a torch.autocast region is cast.",
        why="Each forward of the model and the loss computed from it is put in a region, as tightly as a person would: not "
        "data loading, not backward, not the step.",
        links=(NATIVE,),
        examples=(
            Example(
                "output = model(input)\nloss = criterion(output, target)",
                'with torch.autocast("cuda", dtype=torch.float16):\n    output = model(input)\n    loss = criterion(output, target)',
            ),
        ),
    ),
    Code(
        "AMP502",
        "No forward of the model is in sight",
        "torch.autocast",
        apex="Casting is global: the forward may stand anywhere.",
        native="The forward must stand in a region.",
        why="Without a region the migrated program would train in float32.",
        links=(NATIVE,),
    ),
)


def apply(m: Migration) -> None:
    """Wrap every region of the unit."""
    for scope in m.regions.scopes():
        module = scope.module
        found = m.regions.read(scope)
        if m.options.eval == "fp32" and not found.trained:
            continue
        for region in found.found:
            header = m.autocast(module, region.first)
            edits = m.edit(module)
            if region.join is not None:
                last = region.join.items[-1]
                edits.insert("after", last.optional_vars or last.context_expr, f", {header}")
            else:
                edits.wrap(region.first, region.last, header)
            m.output.note(
                module, region.first, "AMP501", "torch.autocast", "forward and loss run under autocast", "as-is"
            )
