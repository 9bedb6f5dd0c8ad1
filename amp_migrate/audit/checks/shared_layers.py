"""A layer normalization that was Apex's own is torch's now in a program that stays with Apex: told where it lies.

Proved: a file whose fused layer normalization became torch's is loaded by a file that sets Apex up still, at a level that may
patch torch. What runs it there, and with which values, is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.program.module import Module
from amp_migrate.audit.program.near import near_in
from amp_migrate.audit.program.program import Program
from amp_migrate.audit.review import Review, mentions
from amp_migrate.audit.sites.setups import setups
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP634",
        title="A layer normalization that a program shares which stays with Apex",
        construct="normalization.FusedLayerNorm",
        apex="O1 and amp.init patch torch.nn.functional.layer_norm to compute in float32, and leave Apex's own layer alone: it "
        "computes in the dtype of what it is given.",
        native="torch.nn.LayerNorm goes by way of the function that is patched.",
        why="As long as that program runs on Apex, what follows each of these layers is float32: more memory, and other "
        "rounding. It ends when the program is migrated too; until then, migrate only the paths that do not share the file.",
        links=("https://nvidia.github.io/apex/layernorm.html",),
    ),
)
FUSED = ("LayerNorm", "layer_norm")


def check(review: Review) -> Iterable[Doubt]:
    changed = {
        change: lines
        for change in review.changes.values()
        if "apex" in change.before.words and (lines := _fused(review.before, change.before))
    }
    if not changed:
        return
    near = near_in(review.after)
    kept = [s for s in setups(review.after, review.values_after) if s.patches and not s.off]
    for change, lines in changed.items():
        leading = near.leading_to([change.after])
        users = [s for s in kept if s.module in leading]
        if not users or len(_fused(review.after, change.after)) >= len(lines):
            continue
        at = f"{users[0].module.path}:{review.line(users[0].module, users[0].call)}"
        message = (
            f"{at} stays with Apex and loads this file: O1 computes torch's layer normalization in float32 there, where Apex's own "
            "took what it was given, so that what follows is float32 (memory, rounding) until that program is migrated"
        )
        yield Doubt(change.path, lines[0], "AMP634", "FusedLayerNorm", message, "review")


def _fused(program: Program, module: Module) -> list[int]:
    """The lines of a file that name a layer normalization of Apex's."""
    found = mentions(program, module, "apex.")
    return [n.lineno for n, name in found if name.startswith("apex.normalization.") and name.endswith(FUSED)]
