"""Half values in lists, loops and comprehensions, on their way to the CPU."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import torch
from apex import amp
from project import criterion, loader, store


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(2, 2)
        self.gate = torch.nn.Linear(2, 2)

    def forward(self, x):
        hidden = self.body(x)
        return {returned}


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
kept, steps = [], []
for x, y in loader:
{lines}
    loss = criterion(store(), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    optimizer.zero_grad()
{tail}
"""
TWO = "[hidden, self.gate(x)]"


def written(lines: str, returned: str = TWO, tail: str = "") -> tuple[str, list[str]]:
    result = rewrite(PROGRAM.format(returned=returned, lines=textwrap.indent(lines, "    "), tail=tail))
    assert result.after is not None
    return result.after, [f.review for f in result.findings if f.code == "AMP504"]


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        ("outputs = model(x)\nstore([o.cpu() for o in outputs])", "[o.float().cpu() for o in outputs]"),
        ("store([o.detach().cpu() for o in model(x)])", "[o.detach().float().cpu() for o in model(x)]"),
        ("outputs = model(x)\nfor o in outputs:\n    kept.append(o.cpu())", "kept.append(o.float().cpu())"),
        (
            "outputs = model(x)\nfor i, o in enumerate(outputs):\n    kept.append(o.cpu())",
            "kept.append(o.float().cpu())",
        ),
        (
            "outputs = model(x)\nstore([o.cpu() for o, t in zip(outputs, y)])",
            "[o.float().cpu() for o, t in zip(outputs, y)]",
        ),
        ("a, b = model(x)\nkept.append(b.cpu())", "kept.append(b.float().cpu())"),
    ],
)
def test_entries_that_layers_gave_are_float32_on_the_cpu(lines: str, after: str) -> None:
    text, reviews = written(lines)
    assert after in text
    assert set(reviews) == {"as-is"}


@pytest.mark.parametrize(
    ("tail", "after"),
    [
        ("store([k.cpu() for k in kept])", "[k.float().cpu() for k in kept]"),
        ("store([row.cpu() for k in kept for row in k])", "[row.float().cpu() for k in kept for row in k]"),
        ("store(torch.cat(kept).cpu())", "torch.cat(kept).float().cpu()"),
        ("store(torch.stack([k.view(-1) for k in kept]).cpu())", "for k in kept]).float().cpu()"),
    ],
)
def test_what_was_put_into_a_list_is_float32_where_it_goes_to_the_cpu(tail: str, after: str) -> None:
    text, reviews = written("kept.append(model(x))", "hidden", tail)
    assert after in text
    assert set(reviews) == {"as-is"}


@pytest.mark.parametrize(
    "lines",
    [
        "best = model(x).max(1)\nkept.append(best.values.cpu())",
        "best, place = model(x).max(1)\nkept.append(best.cpu())",
        "best = torch.topk(model(x), 2)\nkept.append(best.values.cpu())",
    ],
)
def test_values_beside_indices_are_float32(lines: str) -> None:
    text, reviews = written(lines, "hidden")
    assert ".float().cpu())" in text
    assert reviews == ["as-is"]


@pytest.mark.parametrize(
    ("lines", "returned"),
    [
        ("best = model(x).max(1)\nkept.append(best.indices.cpu())", "hidden"),
        ("best, place = model(x).max(1)\nkept.append(place.cpu())", "hidden"),
        ("steps.append(y)\nstore([s.cpu() for s in steps])", "hidden"),
        ("store([t.cpu() for o, t in zip(model(x), y)])", TWO),
        ("store([o.argmax(1).cpu() for o in model(x)])", TWO),
    ],
)
def test_whole_numbers_and_what_no_model_gave_stay_as_they_are(lines: str, returned: str) -> None:
    text, reviews = written(lines, returned)
    assert ".float()" not in text
    assert not reviews


@pytest.mark.parametrize("returned", ["[hidden, lengths(x)]", "[hidden, x.argmax(1)]", "hidden, self.steps"])
def test_entries_of_which_one_may_be_whole_are_cast_where_they_are_not(returned: str) -> None:
    text, reviews = written("outputs = model(x)\nstore([o.cpu() for o in outputs])", returned)
    assert "[(o.float() if o.is_floating_point() else o).cpu() for o in outputs]" in text
    assert reviews == ["as-is"]


def test_entries_out_of_sight_are_pointed_out() -> None:
    text, reviews = written("outputs = model(x)\nstore([o.cpu() for o in outputs])", "pack(hidden)")
    assert ".float()" not in text
    assert reviews
    assert "as-is" not in reviews


OUT_OF_SIGHT = PROGRAM.replace("model = Net().cuda()", "from project import Network\nmodel = Network().cuda()")


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (
            "outputs = model(x)[1:]\nstore([t.cpu().numpy() for t in outputs])",
            "[(t.float() if t.is_floating_point() else t).cpu().numpy() for t in outputs]",
        ),
        (
            "outputs = model(x)\nfor t in outputs[:2]:\n    store(t.detach().cpu().numpy())",
            "store((t.float() if t.is_floating_point() else t).detach().cpu().numpy())",
        ),
        (
            "logits = model(x)\nstore([t.cpu().numpy() for t in logits])",
            "[t.float().cpu().numpy() for t in logits]",
        ),
    ],
)
def test_an_entry_of_what_a_model_out_of_sight_gives_may_hold_indices(lines: str, after: str) -> None:
    result = rewrite(OUT_OF_SIGHT.format(returned="x", lines=textwrap.indent(lines, "    "), tail=""))
    assert result.after is not None
    assert after in result.after


def test_a_name_with_the_letters_of_a_loss_in_a_word_is_none() -> None:
    tail = "with torch.no_grad():\n    outputs = model(x)\nscores = evaluate_conll(outputs)"
    result = rewrite(OUT_OF_SIGHT.format(returned="x", lines="    y = model(x)", tail=tail))
    assert result.after is not None
    assert "\nscores = evaluate_conll(outputs)\n" in result.after


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        ("views = [x]\nviews.append(model(x))\nstore(views[1].cpu())", "store(views[1].float().cpu())"),
        ("views = [x]\nviews.append(model(x))\nstore(views[0].cpu())", "store(views[0].cpu())"),
        ("views = [x, y]\nviews.append(model(x))\nstore(views[1].cpu())", "store(views[1].cpu())"),
        ("views = [x]\nviews.append(model(x))\nstore(views[-1][:, 0].cpu())", "store(views[-1][:, 0].cpu())"),
        (
            "x = x.half()\nviews = [x]\nfor _ in range(2):\n    views.append(model(x))\n"
            "store(views[0].cpu() - views[2].cpu())",
            "store(views[0].float().cpu() - views[2].float().cpu())",
        ),
        ("x = x.half().to('cuda')\nstore(x.cpu())", "store(x.float().cpu())"),
        ("x = x.half()\nstore(x.float().cpu())", "store(x.float().cpu())"),
    ],
)
def test_a_list_that_starts_with_entries_holds_them_and_what_is_appended(lines: str, after: str) -> None:
    text, _ = written(lines, "hidden")
    assert after in text


def test_what_the_program_made_half_itself_stays_so_where_apex_patched_no_copy_to_the_cpu() -> None:
    program = PROGRAM.replace('"O1"', '"O2"')
    lines = "    x = x.half()\n    views = [x]\n    views.append(model(x))\n    store(views[0].cpu())"
    result = rewrite(program.format(returned="hidden", lines=lines, tail=""))
    assert result.after is not None
    assert "store(views[0].cpu())" in result.after
