"""Networks that no run comes to, as a vendored library brings them, are not spoken of."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of, sides, told

TRAIN, AFTER = sides("""
    import torch
  - from apex import amp
    {imports}

    def train(args, loader):
        model = {made}
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x in loader:
  -         with amp.scale_loss(model(x), optimizer) as scaled_loss:
  -             scaled_loss.backward()
  -         optimizer.step()
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             loss = model(x)
  +         scaler.scale(loss).backward()
  +         scaler.step(optimizer)
  +         scaler.update()
    """)
NETS = """
    import torch

    def kept(cls):
        KEPT.append(cls)
        return cls

    def described(*texts):
        def describe(cls):
            cls.__doc__ = "".join(texts) + cls.__doc__
            return cls
        return describe

    class Plain(torch.nn.Module):
        def forward(self, x):
            return x.sum()

    {decorated}
    class Answering(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.start = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return torch.einsum("bl,l->b", x, self.start)

    KINDS = {{"plain": Plain, "answering": Answering}}
    """


@pytest.mark.parametrize(
    ("imports", "made", "decorated", "spoken_of"),
    [
        ("from nets import Plain", "Plain()", "", False),
        ("from nets import Answering", "Answering()", "", True),
        ("from nets import KINDS", "KINDS[args.kind]()", "", True),
        ("import nets", "getattr(nets, args.kind)()", "", True),
        ("import nets", "nets.Plain()", "@registry.add", True),
        ("import nets", "nets.Plain()", "@kept", True),
        ("import nets", "nets.Plain()", "@described('answers', 'questions')", False),
        ("import nets", "nets.Plain()", "@add_start_docstrings(TEXT)", False),
        ("import nets", "nets.Plain()", "@torch.jit.ignore", False),
    ],
)
def test_a_network_that_nothing_mentions(imports: str, made: str, decorated: str, spoken_of: bool) -> None:
    before = {
        "train.py": TRAIN.format(imports=imports, made=made),
        "nets.py": NETS.replace("{decorated}\n    class", f"{decorated}\n    class" if decorated else "class")
        .replace("{{", "{")
        .replace("}}", "}"),
    }
    found = doubts_of(before, {"train.py": AFTER.format(imports=imports, made=made)})
    assert bool(told([d for d in found if "einsum" in d.message], "AMP535")) == spoken_of


OTHERS = """
    from nets import Answering

    def registered(cls):
        KEPT.append(cls)
        return cls

    CLASSES = {"answering": Answering}

    @registered
    class Cases:
        kinds = [Answering]
    """
ASKING = """
    import torch

    class Plain(torch.nn.Module):
        def forward(self, x):
            return x.sum()

    class Answering(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x):
            if next(self.parameters()).dtype == torch.float16:
                x = x.half()
            return self.layer(x)
    """


@pytest.mark.parametrize(("kind", "spoken_of"), [("Plain", False), ("Answering", True)])
def test_a_table_of_the_same_name_in_a_file_that_no_run_loads(kind: str, spoken_of: bool) -> None:
    imports = f"from nets import {kind}\n    CLASSES = {{'it': {kind}}}"
    made = "CLASSES[args.kind]()"
    nets = NETS.replace("{decorated}\n", "\n").replace("{{", "{").replace("}}", "}")
    before = {"train.py": TRAIN.format(imports=imports, made=made), "nets.py": nets, "others.py": OTHERS}
    found = doubts_of(before, {"train.py": AFTER.format(imports=imports, made=made)})
    assert bool(told([d for d in found if "einsum" in d.message], "AMP535")) == spoken_of


@pytest.mark.parametrize(
    ("imports", "made", "spoken_of"),
    [
        ("from nets import Plain", "Plain()", False),
        ("from nets import Answering", "Answering()", True),
        ("import nets", "nets.__dict__[args.kind]()", True),
        ("import nets as models", "vars(models)[args.kind]()", True),
        ("import nets", "made(getattr(nets, args.kind))", True),
        ("import nets", "made(getattr(nets, 'Answering'))", True),
        ("import nets", "made(getattr(nets, 'Plain'), vars(args), args.__dict__)", False),
    ],
)
def test_a_network_that_no_run_makes_may_ask_whether_it_is_half(imports: str, made: str, spoken_of: bool) -> None:
    before = {"train.py": TRAIN.format(imports=imports, made=made).replace('"O1"', '"O2"'), "nets.py": ASKING}
    found = doubts_of(before, {"train.py": AFTER.format(imports=imports, made=made)})
    assert bool(told(found, "AMP547")) == spoken_of
