"""Which optimizers of a unit have scalers of their own, and what these are called."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from amp_migrate.reading.program.module import Module

if TYPE_CHECKING:
    from amp_migrate.reading.units.unit import Init, Unit


def apart(unit: Unit) -> dict[int, str]:
    """The optimizers with a scaler of their own, by number, as the code writes them: where `num_losses` gives each losses
    of its own, or each is an FP16_Optimizer. None where the optimizer of some loss or step cannot be told: they share one
    scaler then."""
    if unit.own_scales:
        return {n: text for text, i in unit.own_scales.items() for n in _numbers(unit, i.module, i.optimizer_targets)}
    texts: dict[int, str] = {}
    groups: dict[int, set[object]] = {}
    for loss in unit.losses:
        number = loss.site.argument(2, "loss_id")
        found = _numbers(unit, loss.module, loss.optimizers)
        if len(loss.optimizers) != 1 or not isinstance(number, ast.Constant) or len(found) != 1:
            return {}
        texts.setdefault(found[0], loss.module.source(loss.optimizers[0]))
        groups.setdefault(found[0], set()).add(number.value)
    numbers = [n for g in groups.values() for n in g]
    asked = {i.only("num_losses") for i in unit.inits} - {None, 1}
    if not asked or len(groups) < 2 or len(numbers) != len(set(numbers)) or len(set(texts.values())) < len(texts):
        return {}
    stepped = [_numbers(unit, s.module, [s.optimizer]) for s in unit.steps]
    first = {n: min((v for v in group if isinstance(v, int)), default=0) for n, group in groups.items()}
    texts = {n: texts[n] for n in sorted(texts, key=first.__getitem__)}  # in the order in which Apex saves their states
    return texts if all(len(found) == 1 and found[0] in texts for found in stepped) else {}


def own_scales(unit: Unit) -> dict[str, Init]:
    """Optimizers that each brought a loss scale of their own, by their text: several FP16_Optimizers of one scope."""
    wrapped = [i for i in unit.inits if i.brings_scale]
    texts = {i.module.source(i.optimizer_targets[0]): i for i in wrapped if len(i.optimizer_targets) == 1}
    alone = len(wrapped) == len(unit.inits) == len(texts) and len({i.site.scope for i in wrapped}) == 1
    if not alone or len(texts) < 2:
        return {}
    numbers = {n for i in wrapped for n in _numbers(unit, i.module, i.optimizer_targets)}
    return texts if len(numbers) == len(texts) else {}


def _numbers(unit: Unit, module: Module, optimizers: Sequence[ast.expr]) -> list[int]:
    """Which optimizers these are, as far as each can be told."""
    found = (unit.optimizers.number(module, node) for node in optimizers)
    return [number for number in found if number is not None]


def suffixes(texts: list[str]) -> dict[str, str]:
    """What sets the scalers of optimizers apart, by the text of each."""
    stems = {text: text.rpartition(".")[2] for text in texts}
    prefix = _common_start(list(stems.values()))
    return {text: _suffix(stem, prefix) for text, stem in stems.items()}


def _common_start(words: Sequence[str]) -> str:
    """The letters that all words begin with."""
    length = 0
    while all(len(w) > length and w[length] == words[0][length] for w in words):
        length += 1
    return words[0][:length]


def _suffix(stem: str, prefix: str) -> str:
    """`D` of optimizerD, `_G` of optimizer_G, `_actor` of actor_optim."""
    if prefix:
        rest = stem[len(prefix) :]
        return f"_{rest}" if prefix.endswith("_") else rest
    for ending in ("_optimizer", "_optim", "_opt"):
        stem = stem.removesuffix(ending)
    return f"_{stem}"
