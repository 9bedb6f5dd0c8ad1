"""Tests of a tensor's dtype: a side that no half tensor comes to is told nothing of. AMP535."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, doubts_of, sides

BEFORE, AFTER = sides("""
    import torch
    import torch.nn.functional as F
  - from apex import amp

    def probabilities(x):
        {body}

    def main(loader):
        model = torch.nn.Linear(4, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
  +     scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
  -         out = model(x)
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             out = model(x)
            print(probabilities(out))
    """)


def told(body: str) -> list[str]:
    body = body.replace("\n", "\n        ")
    return [d.message for d in doubts(BEFORE.format(body=body), AFTER.format(body=body)) if d.code == "AMP535"]


ELSE = """if {test}:
    return F.softmax(x.float(), 1)
else:
    return F.softmax(x, 1)"""
BEHIND = """if {test}:
    return F.softmax(x.float(), 1)
return F.softmax(x, 1)"""


@pytest.mark.parametrize("text", [ELSE, BEHIND], ids=["else", "after"])
@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("x.type() == 'torch.cuda.HalfTensor'", False),
        ("x.dtype == torch.float16", False),
        ("x.dtype is torch.half or x.dim() > 3", False),
        ("x.dtype in (torch.float16, torch.bfloat16)", False),
        ("not x.dtype == torch.float32", False),
        ("x.dtype != torch.float32", False),
        ("x.dtype == torch.bfloat16", True),
        ("x.dtype == torch.float16 and x.dim() > 3", True),
        ("x.dim() > 3", True),
    ],
)
def test_the_side_of_a_test_that_is_not_half(text: str, test: str, expected: bool) -> None:
    assert bool(told(text.format(test=test))) is expected


def test_a_conditional_expression_that_casts_halves() -> None:
    text = "return F.softmax(x.float() if {} else x, 1)"
    assert not told(text.format("x.dtype == torch.float16"))
    assert told(text.format("x.dtype == torch.float64"))


def test_what_is_known_on_one_side_is_not_known_behind_it() -> None:
    assert told("if x.dtype == torch.float16:\n    print('half')\nelse:\n    print(x)\nreturn F.softmax(x, 1)")


@pytest.mark.parametrize("text", ['"\\t"', 'f"{args}\\t"', "unseen"])
def test_a_method_of_a_text_computes_nothing(text: str) -> None:
    """What is out of sight may."""
    assert bool(told(f"return {text}.join(x)")) is (text == "unseen")


LOSS = sides("""
    import torch
  - from apex import amp
    from library import read_model

    def divided(GIVEN, args):
        if args.devices > 1:
            GIVEN = GIVEN.mean()
        return GIVEN

    def train(args, batches, optimizer):
        model = read_model()
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        for batch in batches:
  -         outputs = model(**batch)
  -         loss = divided(outputs[0], args)
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             outputs = model(**batch)
  +             loss = divided(outputs[0], args)
            loss.backward()
            optimizer.step()
    """)


@pytest.mark.parametrize(("given", "told"), [("loss", False), ("value", True), ("task_loss", False)])
def test_what_a_parameter_calls_a_loss_was_computed_in_float32_and_else_it_is_told_as_a_may(
    given: str, told: bool
) -> None:
    said = [d.message for d in doubts(*(t.replace("GIVEN", given) for t in LOSS)) if "mean" in d.message]
    assert bool(said) is told
    assert all("is float16 in the autocast region where the model ends in a linear" in message for message in said)


EINSUM = sides("""
    import torch
  - from apex import amp
    from elsewhere import values

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(4)

        def forward(self, x, y):
            return self.scores(GIVEN) + self.scores(values(x), values(y))

        def scores(self, x, y):
            return torch.einsum("if,vf->iv", x, y)

    def main(batches, model, optimizer):
        head = Head()
  -     head, optimizer = amp.initialize(head, optimizer, opt_level="O1")
        for x in batches:
  -         print(head(x, x))
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             print(head(x, x))
    """)


@pytest.mark.parametrize(("given", "sure"), [("self.norm(x), self.norm(y)", True), ("values(y), values(x)", False)])
def test_an_operation_that_was_float32_for_certain_is_not_told_as_a_may_as_well(given: str, sure: bool) -> None:
    said = [d.message for d in doubts(*(t.replace("GIVEN", given) for t in EINSUM)) if "einsum" in d.message]
    assert ["See all of this file" in message for message in said] == [not sure]


CLASSES = """
    import torch

    class Scores(torch.nn.Module):
        def forward(self, x):
            return torch.einsum("if,vf->iv", x, x)

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = Scores()
            self.line = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.scores(self.line(x))

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.line(x)
"""
MAIN = sides("""
    import torch
  - from apex import amp
    import nets

    def main(batches, optimizer, kind):
        model = MADE
  -     model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in batches:
  -         print(model(x))
  +         with torch.autocast("cuda", dtype=torch.float16):
  +             print(model(x))
    """)


@pytest.mark.parametrize(
    ("made", "told"), [("Plain()", False), ("Whole()", True), ("{'a': Whole, 'b': Plain}[kind]()", True)]
)
def test_an_operation_of_a_class_that_no_program_makes_is_not_told(made: str, told: bool) -> None:
    texts = (CLASSES + t.replace("import nets\n", "").replace("MADE", made) for t in MAIN)
    assert any("einsum" in d.message for d in doubts(*texts)) is told


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("getattr(nets, kind)()", True),
        ("nets.__dict__[kind]()", True),
        ("nets.Plain(getattr(kind, kind.name))", False),
        ("nets.Plain((lambda nets: getattr(nets, kind.name))(kind))", False),
    ],
)
def test_a_class_that_is_taken_by_a_computed_name_may_be_made(made: str, told: bool) -> None:
    before, after = (t.replace("MADE", made) for t in MAIN)
    found = doubts_of({"nets.py": CLASSES, "train.py": before}, {"train.py": after})
    assert any("einsum" in d.message for d in found) is told
