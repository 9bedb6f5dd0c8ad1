"""Verdict 3, precision: the same operations compute in half, in training and in evaluation.

Apex O1's lists: https://nvidia.github.io/apex/amp.html#o1-mixed-precision-recommended-for-typical-use
CUDA autocast's: https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior
"""

from __future__ import annotations

from amp_migrate.verify.record import Recording
from amp_migrate.verify.thresholds import CENSUS_SHARE
from amp_migrate.verify.verdicts.verdict import Verdict

NAME = "precision"
HALF = ("float16", "bfloat16")

# Where the two lists differ on purpose: kind -> what to say. Apex O1 keeps these in fp32.
ANNOUNCED_O1 = {
    "gelu": "Apex O1 computes gelu in fp32; CUDA autocast leaves it in its input's dtype",
    "std/var": "Apex O1 computes std and var in fp32; CUDA autocast leaves them in their input's dtype",
    "attention": "scaled_dot_product_attention is on autocast's fp16 list and unknown to Apex",
    **dict.fromkeys(
        ("einsum", "tensordot", "inner", "chain_matmul"),
        "autocast computes the products inside in half; Apex O1, which patched functions by name, left them in their "
        "input's dtype",
    ),
    "rnn": "Apex patches recurrent cells by hand; autocast knows the whole RNN",
}
# Apex patched functions by name, and of these only those of nn.functional; autocast knows the operation itself.
BY_NAME = frozenset(
    {
        *("softmax", "log_softmax", "layer_norm", "group_norm", "rms_norm", "exp", "log", "pow", "prod", "cumsum"),
        *("nll_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "bce_with_logits"),
    }
)
ASKED = {
    "bfloat16": "bfloat16, as asked for: 8 significant bits where float16 has 11, so numbers agree more coarsely; the "
    "range of fp32, so that no loss scale is needed and no step overflows",
    "float16": "float16, as asked for: 11 significant bits where bfloat16 has 8, and a range that needs a loss scale",
}
NOT_GIVEN = "a network that `amp.initialize` was not given (averaged weights, a teacher) runs inside the region: O2 left it in fp32"
# O2 and O3 run everything but batch norm in half; autocast chooses per operation. These must agree all the same.
MATRIX_KINDS = ("linear", "matmul", "conv", "einsum", "tensordot", "inner", "chain_matmul")


def judge(original: Recording, migrated: Recording, dtype: str | None = None) -> Verdict:
    """Both recordings carry a census; `dtype` is the half format that was asked for, None for the original's."""
    evidence: list[str] = []
    causes: list[str] = []
    announced: list[str] = []
    by_hand = original.opt_level is None and not original.end.get("autocast") and computes_in_half(original)
    whole_model_half = original.opt_level in ("O2", "O3") or by_hand
    if whole_model_half:
        who = "the original" if by_hand else f"Apex {original.opt_level}"
        announced.append(
            f"{who} ran on half weights, everything but batch norm in half; autocast keeps fp32 weights and chooses "
            "per operation"
        )
    for phase in sorted(set(original.census) | set(migrated.census)):
        _compare_phase(original, migrated, phase, whole_model_half, evidence, causes, announced)
        _compare_formats(original, migrated, phase, dtype, evidence, causes, announced)
    _weights(original, migrated, evidence, causes, announced)
    inside = next((a.window for a in migrated.attempts for b in a.backwards if b.autocast), None)
    if inside is not None and not any(b.autocast for a in original.attempts for b in a.backwards):
        evidence.append(f"step {inside}: backward runs inside an autocast region")
        causes.append("`.backward()` belongs after the `with torch.autocast(...)` block")
    data = {"original": original.census, "migrated": migrated.census}
    if evidence:
        return Verdict(NAME, "disagrees", evidence[0], evidence, causes, announced, data)
    if not original.census.get("train"):
        return Verdict(NAME, "unjudged", "no operation whose dtype is known was run", announced=announced, data=data)
    if "eval" not in original.census:
        announced.append("no evaluation ran within these steps: its precision was not seen")
    return Verdict(NAME, "agrees", _summary(migrated), announced=announced, data=data)


def _compare_phase(
    original: Recording, migrated: Recording, phase: str, whole_model_half: bool,
    evidence: list[str], causes: list[str], announced: list[str],
) -> None:  # fmt: skip
    before, after = original.census.get(phase, {}), migrated.census.get(phase, {})
    said = {"train": "training", "eval": "evaluation"}[phase]
    if before and not after:
        evidence.append(f"{said} ran in the original and not in the migrated program")
        causes.append("a branch of the program was lost")
        return
    for kind in sorted(set(before) & set(after)):
        one, other = _half_share(before[kind]), _half_share(after[kind])
        if abs(one - other) <= CENSUS_SHARE:
            continue
        told = f"{said}: {kind} computes in half {other:.0%} of the time, in the original {one:.0%}"
        if kind in BY_NAME and other < one and not whole_model_half:
            announced.append(
                f"{told}: autocast computes {kind} in fp32 however it is called, Apex O1 only as a function it knew"
            )
        elif kind in ANNOUNCED_O1 and not whole_model_half:
            announced.append(f"{told}: {ANNOUNCED_O1[kind]}")
        elif whole_model_half and kind not in MATRIX_KINDS:
            announced.append(f"{told}: by autocast's lists, where Apex had half weights")
        elif _follows_input(kind) and _differ_in_announced(before, after, whole_model_half):
            announced.append(f"{told}: it computes in the dtype the operation before it left")
        else:
            evidence.append(told)
            causes += [NOT_GIVEN] if whole_model_half and other > one else _causes(phase, one, other)


def _compare_formats(
    original: Recording, migrated: Recording, phase: str, dtype: str | None,
    evidence: list[str], causes: list[str], announced: list[str],
) -> None:  # fmt: skip
    """float16 and bfloat16 are different precisions: each kind computes in the format asked for, or the original's."""
    before, after = original.census.get(phase, {}), migrated.census.get(phase, {})
    moved: dict[tuple[str, str], list[str]] = {}
    missed: list[str] = []
    for kind in sorted(after):
        now = _bfloat16_share(after[kind])
        then = _bfloat16_share(before.get(kind, {}))
        stays = then is not None and now is not None and abs(now - then) <= CENSUS_SHARE
        if now is not None and dtype is not None and abs(now - (dtype == "bfloat16")) > CENSUS_SHARE:
            if dtype == "bfloat16" or not stays:  # float16 is what Apex had: what was bfloat16 beside it may stay
                missed.append(kind)
        if now is not None and then is not None and abs(now - then) > CENSUS_SHARE:
            names = ("float16", "bfloat16") if now > then else ("bfloat16", "float16")
            moved.setdefault(names, []).append(kind)
    said = {"train": "training", "eval": "evaluation"}[phase]
    if missed:
        other = HALF[dtype == "float16"]
        evidence.append(f"{said}: {dtype} was asked for; the migrated program computes {', '.join(missed)} in {other}")
        causes.append("an autocast region, or `.half()`, has another `dtype=`")
    for (one, other), kinds in moved.items():
        told = f"{said}: {', '.join(kinds)} in {other}, in the original in {one}"
        if dtype == other:
            announced += [told, ASKED[other]]
        elif dtype is None:
            evidence.insert(0, told)
            causes.insert(
                0,
                f"{other} in place of {one}, another precision and another range; if it is wanted, say so: "
                f'`--dtype {other}`, or `dtype = "{other}"` in the case',
            )


def _bfloat16_share(dtypes: dict[str, int]) -> float | None:
    """Of what computes in half; None when nothing does."""
    halves = sum(dtypes.get(dtype, 0) for dtype in HALF)
    return dtypes.get("bfloat16", 0) / halves if halves else None


def _weights(
    original: Recording, migrated: Recording, evidence: list[str], causes: list[str], announced: list[str]
) -> None:
    before = {d for a in original.attempts for d in a.dtypes}
    after = {d for a in migrated.attempts for d in a.dtypes}
    halves = [d for d in after if d in HALF and d not in before]
    if halves:
        evidence.append(f"the optimizer holds {', '.join(halves)} weights; in the original {', '.join(sorted(before))}")
        causes.append("`.half()` or `.bfloat16()` on the model was left in")
    elif before & set(HALF) and not after & set(HALF):
        announced.append("the original's optimizer updated half weights (O3); the migrated program's are fp32")


def computes_in_half(recording: Recording) -> bool:
    """Whether any operation of its census ran in half."""
    return any(d in HALF for kinds in recording.census.values() for dtypes in kinds.values() for d in dtypes)


def _half_share(dtypes: dict[str, int]) -> float:
    return sum(n for d, n in dtypes.items() if d in HALF) / max(1, sum(dtypes.values()))


def _follows_input(kind: str) -> bool:
    return kind in ("batch_norm", "softmax_input")


def _differ_in_announced(
    before: dict[str, dict[str, int]], after: dict[str, dict[str, int]], whole_model_half: bool
) -> bool:
    return any(
        kind in before and kind in after and abs(_half_share(before[kind]) - _half_share(after[kind])) > CENSUS_SHARE
        for kind in ANNOUNCED_O1
    )


def _causes(phase: str, one: float, other: float) -> list[str]:
    if other > one:
        return ["an fp32 island (`autocast(enabled=False)`) was lost", "weights or inputs were left in half"]
    if phase == "eval":
        return ["evaluation stands outside `torch.autocast`"]
    return ["a forward or loss stands outside `torch.autocast`", "an `enabled=` flag is inverted or lost"]


def _summary(migrated: Recording) -> str:
    """What computes in half in training, and in evaluation where that is not told with it."""
    half = {
        phase: {kind: _half_share(counts) > 0.5 for kind, counts in kinds.items()}
        for phase, kinds in migrated.census.items()
    }
    train, evaluation = half.get("train", {}), half.get("eval", {})
    if not evaluation:
        return f"training: {_told(train)}"
    if all(train.get(kind) == is_half for kind, is_half in evaluation.items()):
        return f"training and evaluation: {_told(train)}"
    return f"training: {_told(train)}. Evaluation: {_told(evaluation)}"


def _told(kinds: dict[str, bool]) -> str:
    half, full = ([kind for kind in kinds if kinds[kind] is wanted] for wanted in (True, False))
    return f"half for {', '.join(half) or 'nothing'}; fp32 for {', '.join(full) or 'nothing'}"
