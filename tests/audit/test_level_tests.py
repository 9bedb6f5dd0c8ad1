"""Code that picks a dtype by the opt level, and writes that take values of one dtype alone."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

BEFORE = """
    import argparse

    import torch
    from apex import amp

    parser = argparse.ArgumentParser()
    parser.add_argument("--opt-level", {option})
    args = parser.parse_args()


    class Margin(torch.nn.Module):
        def __init__(self, scale=2.0):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 4))
            self.scale = scale

        def forward(self, x, label):
            cosine = torch.mm(x, self.weight)
            chosen = torch.where(label > 0, torch.pow(cosine, 2), cosine - self.scale)
            if {test}:
                chosen = {cast}
            {write}
            return cosine


    def main():
        model = Margin().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level={level})
        for x, y in []:
            loss = model(x, y).sum()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()


    main()
    """
AFTER = (
    BEFORE.replace("    from apex import amp\n", "")
    .replace(
        "model, optimizer = amp.initialize(model, optimizer, opt_level={level})",
        'scaler = torch.amp.GradScaler("cuda", enabled={level} != "O0")',
    )
    .replace(
        "            loss = model(x, y).sum()",
        '            with torch.autocast("cuda", dtype=torch.float16, enabled={level} != "O0"):\n'
        "                loss = model(x, y).sum()",
    )
    .replace(
        "            with amp.scale_loss(loss, optimizer) as scaled_loss:\n                scaled_loss.backward()\n"
        "            optimizer.step()",
        "            scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()",
    )
)
O1 = 'args.opt_level == "O1"'
WRITE = "cosine.scatter_(1, label, chosen)"


def found(
    test: str = O1,
    cast: str = "chosen.half()",
    write: str = "pass",
    option: str = 'default="O2"',
    level: str = "args.opt_level",
) -> list[tuple[str, str]]:
    words = {"test": test, "cast": cast, "write": write, "option": option, "level": level}
    return [
        (d.code, d.verdict)
        for d in doubts(BEFORE.format(**words), AFTER.format(**words))
        if d.code == "AMP539" or (d.code in ("AMP535", "AMP542") and "one dtype" in d.message)
    ]


@pytest.mark.parametrize(
    ("test", "cast"),
    [
        (O1, "chosen.half()"),
        (O1, "chosen.to(torch.float16)"),
        (f"label is not None and {O1}", "chosen.float()"),
        ('args.opt_level in ("O2", "O3")', "chosen.half()"),
        ('not args.opt_level == "O2"', "chosen.half()"),
    ],
)
def test_a_cast_that_depends_on_which_level_it_is_is_told(test: str, cast: str) -> None:
    assert found(test, cast) == [("AMP539", "review")]


@pytest.mark.parametrize(
    ("test", "cast", "option", "level"),
    [
        ('args.opt_level != "O0"', "chosen.half()", 'default="O2"', "args.opt_level"),
        (O1, "chosen.to(x.device)", 'default="O2"', "args.opt_level"),
        (O1, "chosen * 2", 'default="O2"', "args.opt_level"),
        (O1, "chosen.half()", 'choices=["O0", "O1"]', "args.opt_level"),
        ('args.mode == "O1"', "chosen.half()", 'default="O2"', "args.opt_level"),
        (O1, "chosen.half()", 'default="O2"', '"O1"'),
    ],
)
def test_what_is_the_same_at_all_levels_that_may_be_is_not(test: str, cast: str, option: str, level: str) -> None:
    assert found(test, cast, option=option, level=level) == []


@pytest.mark.parametrize(
    "write",
    [
        WRITE,
        "cosine.index_copy_(0, label, chosen)",
        "cosine = torch.scatter(cosine, 1, label, chosen)",
        "cosine.scatter_reduce_(1, label, chosen, reduce='sum')",
        "cosine.index_put_((label,), chosen, accumulate=True)",
        "cosine.index_add_(0, label, source=chosen, alpha=2)",
        "cosine.masked_scatter_(label > 0, chosen)",
        "cosine[cosine > 0] = chosen[cosine > 0]",
        "cosine[~(cosine > 0)] = chosen",
    ],
)
def test_a_write_of_float32_into_half_that_o2_had_in_half_is_refused(write: str) -> None:
    assert ("AMP542", "refuse") in found(write=write)  # which a rule casts
    assert ("AMP542", "refuse") in found("False", "chosen", write, level='"O2"')


@pytest.mark.parametrize(
    ("test", "cast", "write", "level"),
    [
        ('args.opt_level in ("O1", "O2", "O3")', "chosen.half()", WRITE, "args.opt_level"),
        (O1, "chosen.half()", "cosine.scatter_(1, label, chosen.to(cosine.dtype))", "args.opt_level"),
        (O1, "chosen.half()", "cosine[0] = chosen[0]", "args.opt_level"),  # a copy casts
        (O1, "chosen.half()", "cosine[x.size(0) - 1] = chosen[0]", "args.opt_level"),
        (O1, "chosen.half()", "cosine[cosine > 0] = chosen.sum()", "args.opt_level"),  # one number
        (O1, "chosen.half()", "cosine[cosine > 0] = 0.5", "args.opt_level"),
        ("False", "chosen", "cosine = cosine.scatter_add(1, label, chosen)", '"O2"'),  # which autocast promotes
        ("False", "chosen", "cosine = cosine.index_put((label,), chosen)", '"O2"'),
        ("False", "chosen", WRITE, '"O1"'),  # raised before as well
        ("False", "chosen", "cosine.scatter_(1, label, chosen.half().float())", '"O2"'),  # so did this
        (O1.replace("==", "in").replace('"O1"', '("O2",)'), "chosen.half()", WRITE, "args.opt_level"),
    ],
)
def test_writes_of_one_dtype_and_those_that_raised_before_are_not(test: str, cast: str, write: str, level: str) -> None:
    assert not [f for f in found(test, cast, write, level=level) if f[0] != "AMP539"]


def test_where_o1_is_what_is_usual_a_write_that_fails_at_o2_is_told() -> None:
    assert ("AMP542", "review") in found(write=WRITE, option='default="O1"')
    assert told(
        doubts(
            BEFORE.format(test=O1, cast="chosen.half()", write=WRITE, option='default="O1"', level="args.opt_level"),
            AFTER.format(test=O1, cast="chosen.half()", write=WRITE, option='default="O1"', level="args.opt_level"),
        ),
        "AMP539",
    )


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("cosine - 0.2", True),  # half, as the cosines; on the other way a power, which is float32
        ("chosen.half()", False),  # a cast, for which the program has its reasons
        ("torch.exp(cosine)", True),
        ("chosen.to(cosine.dtype)", False),
    ],
)
def test_a_value_that_is_float32_on_one_way_is_written_there(other: str, expected: bool) -> None:
    assert (("AMP542", "refuse") in found("x.dim() > 1", other, WRITE, level='"O2"')) is expected
