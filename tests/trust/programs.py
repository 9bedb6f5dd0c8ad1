"""An Apex training program and its migration, in every regime, right or with one fault planted.

Two models with an optimizer each, dropout, gradient clipping, evaluation and a checkpoint every epoch, `--resume`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent, indent

STEPS_PER_EPOCH = 4


@dataclass(frozen=True)
class Regime:
    """What kind of training it is; faults show in some and not in others."""

    optimizer: str = "adam"  # sgd, adam
    scale: str = "high"  # high: dynamic from 65536; low: dynamic from 16; static: 128
    clip: str = "binds"  # binds, never
    accumulation: int = 1
    resume: bool = False
    model: str = "relu"  # relu, gelu, conv
    level: str = "O1"  # the original's opt level
    seed: int = 0
    shape: str = ""  # of `shaped`; "" for the program of this file

    def __str__(self) -> str:
        parts = [self.shape] if self.shape else []
        parts += [self.optimizer, f"{self.scale} scale", f"clip {self.clip}", f"x{self.accumulation}"]
        return ", ".join(parts + (["resume"] if self.resume else []))


def regimes(*, resume: tuple[bool, ...] = (False, True)) -> Iterator[Regime]:
    """Every combination that matters to a fault."""
    for optimizer, scale, clip, accumulation, resumed in itertools.product(
        ("sgd", "adam"), ("high", "low", "static"), ("binds", "never"), (1, 2), resume
    ):
        yield Regime(optimizer, scale, clip, accumulation, resumed)


_HEAD = """\
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
{imports}
parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--fp32", action="store_true")
parser.add_argument("--evaluate", action="store_true")
args = parser.parse_args()

torch.manual_seed({seed})
{model}
opt_a = {optimizer}
opt_b = {optimizer_b}
data = torch.randn(256, 12)
labels = (data[:, :4].sum(1) * 3).long().clamp(0, 3)
"""

_MODELS = {
    "relu": """\
encoder = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1)).cuda()
head = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4)).cuda()
""",
    "gelu": """\
encoder = nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Dropout(0.1)).cuda()
head = nn.Sequential(nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 4)).cuda()
""",
    "conv": """\
encoder = nn.Sequential(
    nn.Unflatten(1, (1, 12)), nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1)
).cuda()
head = nn.Sequential(nn.Linear(48, 24), nn.Tanh(), nn.Linear(24, 4)).cuda()
""",
}

_OPTIMIZERS = {
    "sgd": "torch.optim.SGD({0}.parameters(), lr=0.05, momentum=0.9)",
    "adam": "torch.optim.Adam({0}.parameters(), lr=0.002)",
}

_MAX_NORM = {"binds": "0.05", "never": "1e9"}


def _head(regime: Regime, imports: str) -> str:
    optimizer = _OPTIMIZERS[regime.optimizer]
    return _HEAD.format(
        imports=imports,
        seed=regime.seed,
        model=_MODELS[regime.model],
        optimizer=optimizer.format("encoder"),
        optimizer_b=optimizer.format("head"),
    )


def _epochs(body: str, evaluation: str, alone: str, state: str, load: str, accumulation: int) -> str:
    """The loop around the training step, evaluation and checkpoint; before it, evaluation alone."""
    return (
        "if args.evaluate:\n"
        + indent(f"encoder.eval()\nhead.eval()\n{alone}print(accuracy.item())\nraise SystemExit\n", "    ")
        + dedent("""\
        start = 0
        if args.resume:
            checkpoint = torch.load(args.resume, map_location="cpu")
            start = checkpoint["epoch"]
            encoder.load_state_dict(checkpoint["encoder"])
            head.load_state_dict(checkpoint["head"])
            opt_a.load_state_dict(checkpoint["opt_a"])
            opt_b.load_state_dict(checkpoint["opt_b"])
        """)
        + indent(load, "    ")
        + dedent(f"""\
        for epoch in range(start, 20):
            encoder.train()
            head.train()
            order = torch.randperm(256)
            for micro in range({STEPS_PER_EPOCH * accumulation}):
                chosen = order[micro * 16 : micro * 16 + 16]
                x, y = data[chosen].cuda(), labels[chosen].cuda()
                boundary = (micro + 1) % {accumulation} == 0
        """)
        + indent(body, " " * 8)
        + dedent("""\
            encoder.eval()
            head.eval()
        """)
        .replace("encoder.eval", "    encoder.eval")
        .replace("head.eval", "    head.eval")
        + indent(evaluation, "    ")
        + indent(
            dedent(f"""\
            print(epoch, "accuracy", accuracy.item())
            torch.save({{"epoch": epoch + 1, "encoder": encoder.state_dict(), "head": head.state_dict(),
                        "opt_a": opt_a.state_dict(), "opt_b": opt_b.state_dict(), {state}}}, "checkpoint.pt")
            """),
            "    ",
        )
    )


def original(regime: Regime) -> str:
    """The Apex program."""
    scale = ", loss_scale=128.0" if regime.scale == "static" else ""
    low = ""
    if regime.scale == "low":
        low = "amp._amp_state.loss_scalers[0]._loss_scale = 16.0\n"
    initialize = (
        f"[encoder, head], [opt_a, opt_b] = amp.initialize([encoder, head], [opt_a, opt_b], "
        f'opt_level="O0" if args.fp32 else "{regime.level}"{scale}, verbosity=0)\n{low}'
    )
    body = dedent(f"""\
        loss = F.cross_entropy(head(encoder(x)), y) / {regime.accumulation}
        with amp.scale_loss(loss, [opt_a, opt_b]) as scaled:
            scaled.backward()
        if boundary:
            for optimizer in (opt_a, opt_b):
                nn.utils.clip_grad_norm_(amp.master_params(optimizer), {_MAX_NORM[regime.clip]})
            opt_a.step()
            opt_b.step()
            opt_a.zero_grad()
            opt_b.zero_grad()
    """)
    evaluation = dedent("""\
        with torch.no_grad():
            accuracy = (head(encoder(data.cuda())).argmax(1) == labels.cuda()).float().mean()
    """)
    loop = _epochs(
        body,
        evaluation,
        evaluation,
        '"amp": amp.state_dict()',
        'amp.load_state_dict(checkpoint["amp"])\n',
        regime.accumulation,
    )
    return _head(regime, "from apex import amp\n") + initialize + loop


FAULTS = (
    "missing unscale_",
    "duplicate unscale_",
    "missing update",
    "update before step",
    "update between optimizers",
    "autocast missing",
    "autocast around backward",
    "autocast missing on one of two models",
    "loss scaled twice",
    "backward on the unscaled loss",
    "scaler state not saved",
    "scaler state not restored",
    "wrong initial scale",
    "wrong growth interval",
    "static made dynamic",
    "dynamic made static",
    "clipping per micro-batch",
    "clipping before unscaling",
    "step of one optimizer lost",
    "enabled inverted",
    "evaluation out of autocast",
    "weights left in half",
    "bfloat16 in place of float16",
    "bfloat16 in evaluation",
    "plain step after unscale_",
    "plain step of one optimizer",
    "no update after an overflow",
    "gradients kept after an overflow",
    "overflow hidden from the scaler",
    "wrong backoff factor",
    "wrong growth factor",
    "switch lost",
    "evaluation alone out of autocast",
)

# Faults that no clean step shows, and the drills of which one must.
DRILLED = {
    **dict.fromkeys(FAULTS[FAULTS.index("plain step after unscale_") :], "overflow"),
    "plain step of one optimizer": "overflow,one-optimizer",
    "overflow hidden from the scaler": "overflow,accumulation-overflow",
    "wrong growth factor": "growth",
    "switch lost": "switch-off",
    "evaluation alone out of autocast": "evaluation",
}


def migrated(regime: Regime, fault: str | None = None) -> str:
    """The native program: right, or with `fault`."""
    assert fault is None or fault in FAULTS
    static = (regime.scale == "static") != (fault in ("static made dynamic", "dynamic made static"))
    start = {"high": 65536.0, "low": 16.0, "static": 128.0}[regime.scale]
    if fault == "wrong initial scale":
        start *= 4
    options = f"init_scale={start}"
    interval = 2000 // regime.accumulation if regime.accumulation > 1 else 2000
    if fault == "wrong growth interval":
        interval = 500
    if not static and interval != 2000:
        options += f", growth_interval={interval}"
    switch = {"enabled inverted": ", enabled=args.fp32", "switch lost": ""}.get(str(fault), ", enabled=not args.fp32")
    options += switch
    if fault == "wrong growth factor":
        options += ", growth_factor=1.5"
    if fault == "wrong backoff factor":
        options += ", backoff_factor=0.25"
    update = f"scaler.update({start})" if static else "scaler.update()"
    enabled = ", enabled=False" if fault == "autocast missing" else switch
    setup = f'scaler = torch.amp.GradScaler("cuda", {options})\n'
    if fault == "weights left in half":
        setup += "head.half()\n"
    half = "bfloat16" if fault == "bfloat16 in place of float16" else "float16"
    body = _step(regime, fault, update, f'torch.autocast("cuda", dtype=torch.{half}{enabled})')
    half = "bfloat16" if str(fault).startswith("bfloat16") else "float16"
    region = f', torch.autocast("cuda", dtype=torch.{half}{enabled})'
    joined = "" if fault == "evaluation out of autocast" else region
    evaluation = dedent(f"""\
        with torch.no_grad(){joined}:
            accuracy = (head(encoder(data.cuda())).argmax(1) == labels.cuda()).float().mean()
    """)
    alone = evaluation
    if fault == "evaluation alone out of autocast":
        alone = evaluation.replace(region, "")
    saved = "" if fault == "scaler state not saved" else '"scaler": scaler.state_dict()'
    load = (
        'if "scaler" in checkpoint:\n    scaler.load_state_dict(checkpoint["scaler"])\n'
        if fault != "scaler state not restored"
        else ""
    )
    return _head(regime, "") + setup + _epochs(body, evaluation, alone, saved, load, regime.accumulation)


def _step(regime: Regime, fault: str | None, update: str, region: str) -> str:
    forward = f"loss = F.cross_entropy(head(encoder(x)), y) / {regime.accumulation}"
    if fault == "autocast missing on one of two models":
        forward = dedent(f"""\
            with torch.autocast("cuda", enabled=False):
                hidden = encoder(x)
            loss = F.cross_entropy(head(hidden), y) / {regime.accumulation}""")
    backward = "scaler.scale(loss).backward()"
    if fault == "loss scaled twice":
        backward = "scaler.scale(scaler.scale(loss)).backward()"
    elif fault == "backward on the unscaled loss":
        backward = "scaler.scale(loss)\nloss.backward()"
    if fault == "autocast around backward":
        lines = [f"with {region}:", indent(forward, "    "), indent(backward, "    ")]
    else:
        lines = [f"with {region}:", indent(forward, "    "), backward]
    clips = [
        f"nn.utils.clip_grad_norm_(encoder.parameters(), {_MAX_NORM[regime.clip]})",
        f"nn.utils.clip_grad_norm_(head.parameters(), {_MAX_NORM[regime.clip]})",
    ]
    unscales = ["scaler.unscale_(opt_a)", "scaler.unscale_(opt_b)"]
    steps = ["scaler.step(opt_a)", "scaler.step(opt_b)", update]
    if fault == "missing unscale_":
        before = clips
    elif fault == "duplicate unscale_":
        before = [unscales[0], *unscales, *clips]
    elif fault == "clipping before unscaling":
        before = [*clips, *unscales]
    elif fault == "clipping per micro-batch":
        # Written so that it runs: the gradients of every micro-batch are clipped at the size they have unscaled.
        lines += [
            "scale = scaler.get_scale()",
            f"nn.utils.clip_grad_norm_(encoder.parameters(), {_MAX_NORM[regime.clip]} * scale)",
            f"nn.utils.clip_grad_norm_(head.parameters(), {_MAX_NORM[regime.clip]} * scale)",
        ]
        before = unscales
    else:
        before = [*unscales, *clips]
    if fault == "missing update":
        steps = steps[:2]
    elif fault == "update before step":
        steps = [update, *steps[:2]]
    elif fault == "update between optimizers":
        steps = [steps[0], update, steps[1], update]
    elif fault == "step of one optimizer lost":
        steps = [steps[0], update]
    elif fault == "plain step after unscale_":
        steps = ["opt_a.step()", "opt_b.step()", update]
    elif fault == "plain step of one optimizer":
        steps = [steps[0], "opt_b.step()", update]
    elif fault == "no update after an overflow":
        before = [*unscales, f"norm = {clips[0]}", clips[1]]
        steps = [*steps[:2], f"if norm.isfinite():\n    {update}"]
    elif fault == "overflow hidden from the scaler":
        hide = "for p in (*encoder.parameters(), *head.parameters()):\n    p.grad.nan_to_num_(0.0, 0.0, 0.0)"
        before = [hide, *before]
    zero = ["opt_a.zero_grad()", "opt_b.zero_grad()"]
    if fault == "gradients kept after an overflow":
        steps = ["scale = scaler.get_scale()", *steps]
        zero = ["if scaler.get_scale() >= scale:\n    opt_a.zero_grad()\n    opt_b.zero_grad()"]
    inside = [*before, *steps, *zero]
    return "\n".join([*lines, "if boundary:", *(indent(line, "    ") for line in inside)]) + "\n"


def cannot_change(fault: str, regime: Regime) -> str | None:
    """Why a fault changes nothing in a regime; None where it must be caught."""
    if fault == "clipping per micro-batch" and regime.accumulation == 1:
        return "one micro-batch a step: the same program"
    if fault == "clipping per micro-batch" and regime.clip == "never":
        return "the clip factor is 1 at every call, so no gradient is touched"
    if fault in ("plain step after unscale_", "plain step of one optimizer") and regime.scale == "static":
        return "Apex skips no step under a static scale either"
    if fault == "overflow hidden from the scaler" and regime.scale == "static":
        return "Apex does not look for an overflow under a static scale either"
    if fault in ("wrong backoff factor", "gradients kept after an overflow") and regime.scale == "static":
        return "a static scale is not halved: nothing tells the program of an overflow"
    if fault == "static made dynamic" and regime.scale != "static":
        return "the scale is dynamic"
    if fault == "dynamic made static" and regime.scale == "static":
        return "the scale is static"
    if fault in ("wrong growth interval", "wrong growth factor") and regime.scale == "static":
        return "a static scale does not grow"
    if fault in ("scaler state not saved", "scaler state not restored") and regime.scale == "static":
        return "a static scale is set again at the start: nothing is lost"
    if fault == "scaler state not restored" and not regime.resume:
        return "nothing is restored in this regime"
    return None
