"""What something is called, where nothing else says what it is: a model, an optimizer, data."""

from __future__ import annotations

import re

OPTIMIZER_NAMES = frozenset("optimizer optim opt optimizers".split())
MODEL_NAMES = frozenset(
    "model net network netG netD generator discriminator encoder decoder student teacher backbone classifier "
    "self.model G D gen dis module model_ema".split()
)
DATA = frozenset(
    "dataset datasets loader loaders dataloader dataloaders sampler reader writer tokenizer vocab vocabulary cfg config "
    "configs args hparams logger path dir loop".split()
)


def holds_data(name: str) -> bool:
    """Whether something is named as data and its readers are, or as settings: none of these is a model."""
    return re.split(r"_|(?<=[a-z])(?=[A-Z])", name.strip("_"))[-1].lower() in DATA
