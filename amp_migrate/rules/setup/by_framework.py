"""What sets Apex up where the program does not: the framework from whose class one of the program's derives, which runs it.

No codes of its own: `initialize.py` refuses with this reason.
"""

from __future__ import annotations

import builtins
import sys

from amp_migrate.reading.program.definitions import ClassInfo, dotted
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.migration import Migration

NONE = frozenset(
    {*sys.stdlib_module_names, *dir(builtins), "torch", "torchvision", "apex", "numpy", "typing_extensions"}
)
# What their mixed precision by torch's own is called.
NATIVE = {
    "catalyst": "AMPEngine, or fp16=True before there were engines",
    "pytorch_lightning": 'precision="16-mixed", precision=16 before 2.0',
    "lightning": 'precision="16-mixed"',
    "transformers": "fp16=True",
    "ignite": 'amp_mode="amp"',
    "fastai": "to_fp16()",
    "allennlp": "use_amp=True",
    "mmcv": "Fp16OptimizerHook",
    "mmengine": "AmpOptimWrapper",
}


def by_framework(m: Migration, site: Site) -> str | None:
    """Why no set-up is in sight for what a method of a class scales that derives from one out of sight."""
    cls = m.project.class_around(site.scope)
    if cls is None or cls.is_module:
        return None
    base = next((b for c in cls.ancestry() for b in _out_of_sight(m.project, c)), None)
    if base is None:
        return None
    package = base.partition(".")[0] if "." in base else ""
    who = package or f"what {base} belongs to"
    native = f" ({NATIVE[package]})" if package in NATIVE else ""
    return (
        f"nothing in sight calls amp.initialize for this, but {cls.name} derives from {base}, which is out of sight: {who} may set "
        f"Apex up itself for the runs that come here. Ask it for torch's own mixed precision{native} where it is asked for Apex's, "
        "and then let its scaler scale this loss in place of amp.scale_loss"
    )


def _out_of_sight(project: Project, cls: ClassInfo) -> list[str]:
    """The names of what a class derives from that is neither of the program nor of torch or Python."""
    others = (b for b in cls.node.bases if not any(d in project.classes for d in project.definitions(cls.module, b)))
    named = (project.qualify(cls.module, b) or dotted(b) or "" for b in others)
    return [n for n in named if n and n.partition(".")[0] not in NONE]
