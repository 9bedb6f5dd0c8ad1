"""Training programs in the shapes that repositories have, with their own data; their migration is the rewriter's.

The one of `programs` is varied over regimes; these are varied over shapes: fine-tuning, an image classifier with resume,
a GAN, segmentation, a trainer class, contrastive learning, speech, detection. They
lie in `shapes/`, where `$` stands for what a regime says.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from string import Template

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests.trust.programs import Regime

TEXTS = {file.stem: file.read_text("utf-8") for file in sorted((Path(__file__).parent / "shapes").glob("*.txt"))}
ARGUMENTS = {"fine-tuning": ("--fp16",)}
RESUMED = ("classifier",)  # those that can go on from a checkpoint
ALWAYS_O1 = ("contrastive", "trainer")  # under O2 their averaged networks ran in float32, and do not any more

_SCALER = r"([\w.]*scaler\w*)"

# Each fault as pattern and replacement in the text of the migrated program.
FAULTS = {
    "missing unscale_": (rf"\n *{_SCALER}\.unscale_\([^\n]*", ""),
    "missing update": (rf"\n *{_SCALER}\.update\(\)", ""),
    "autocast missing": (
        r"torch\.autocast\(\"cuda\"",
        r'(lambda *_, **options: torch.autocast("cuda", enabled=False))("cuda"',
    ),
    "loss scaled twice": (rf"{_SCALER}\.scale\((\w+)\)", r"\1.scale(\1.scale(\2))"),
    "backward on the unscaled loss": (rf"{_SCALER}\.scale\((\w+)\)", r"\2"),
    "scaler state not saved": (r",\s*\"scaler\": scaler\.state_dict\(\)", ""),
    "wrong growth interval": (r"GradScaler\(\"cuda\"", r"\g<0>, growth_interval=400"),
    "bfloat16 in place of float16": (r"torch\.float16", "torch.bfloat16"),
    "plain step": (rf"{_SCALER}\.step\(([\w.]+)\)", r"\2.step()"),
    "switch lost": (r", enabled=args\.[^\n]*\"O0\"\)", ")"),
}
DRILLED = {"plain step": "overflow", "switch lost": "switch-off"}
_ONLY = {
    "missing unscale_": ("fine-tuning", "classifier", "segmentation", "trainer", "speech"),
    "scaler state not saved": ("classifier", "contrastive"),
    "switch lost": ("fine-tuning", "classifier"),
}
# Its model returns a half loss, whose gradient under the first scale is infinite: Apex skips a step that autocast takes.
RANGE = Regime("sgd", shape="fine-tuning", level="O2", seed=251)


def planted(seed: int = 0) -> list[tuple[Regime, str]]:
    """Every fault in every shape that it can change; in one shape also where only the original overflows at first."""
    ranged = [(RANGE, fault) for fault in FAULTS if RANGE.shape in _ONLY.get(fault, TEXTS)]
    return ranged + [
        (Regime("sgd" if (number + at) % 2 else "adam", clip="binds", shape=shape, seed=seed), fault)
        for number, fault in enumerate(FAULTS)
        for at, shape in enumerate(TEXTS)
        if shape in _ONLY.get(fault, TEXTS)
    ]


def variation(shape: str, pick: random.Random, seed: int) -> Regime:
    """One right run of a shape."""
    return Regime(
        pick.choice(("sgd", "adam")),
        pick.choice(("high", "static")),
        pick.choice(("binds", "never")),
        pick.choice((1, 2)) if "$accumulation" in TEXTS[shape] else 1,
        resume=shape in RESUMED,
        level="O1" if shape in ALWAYS_O1 else pick.choice(("O1", "O2")),
        seed=seed,
        shape=shape,
    )


@cache
def original(regime: Regime) -> str:
    """The Apex program."""
    sgd = regime.optimizer == "sgd"
    return Template(TEXTS[regime.shape]).substitute(
        optimizer="torch.optim.SGD" if sgd else "torch.optim.Adam",
        rate="0.05" if sgd else "0.002",
        accumulation=regime.accumulation,
        clip="0.05" if regime.clip == "binds" else "1e9",
        level=regime.level,
        scale=", loss_scale=128.0" if regime.scale == "static" else "",
        seed=regime.seed,
    )


@cache
def migrated(regime: Regime, fault: str | None = None) -> str:
    """The rewriter's, with a fault or without. Raises ValueError where it leaves something to a person, or where there is
    nothing to plant the fault into."""
    (result,) = migrate(Program([SourceFile(Path("train.py"), "train.py", original(regime))]), Options())
    manual = [f"{f.line} {f.code} {f.message}" for f in result.findings if f.status == "manual"]
    if manual or result.after is None:
        raise ValueError(f"{regime.shape}: {manual}")
    if fault is None:
        return result.after
    text, found = re.subn(*FAULTS[fault], result.after)
    if not found:
        raise ValueError(f"{regime.shape}: nowhere to plant {fault}")
    return text
