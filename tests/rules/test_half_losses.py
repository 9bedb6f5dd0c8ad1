"""An output of the model is float16; reduced outside of a region it is a float16 loss, whose gradient is the scale itself:
infinite at 65536. Apex reduced in float32, so the reduction goes into a region."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import INITIALIZE, apex, found, native

SCALE = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()"
STEP = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"
REGION = 'with torch.autocast("cuda", dtype=torch.float16):\n    '


BETWEEN = "print(x)\n" * 4


@pytest.mark.parametrize(
    "loss",
    [
        "-output.sum()",
        "(output ** 2).mean()",
        "output.pow(2).mean()",
        "torch.nn.functional.softplus(output).mean()",
        "torch.sum(output)",
        "output[0].norm(dim=1).sum() / 2",
    ],
)
def test_the_sum_of_an_output_goes_into_a_region(loss: str) -> None:
    check_rewrite(
        apex(f"output = model(x)\n{BETWEEN}loss = {loss}\n{SCALE}"),
        native(f"{REGION}output = model(x)\n{BETWEEN}{REGION}loss = {loss}\n{STEP}"),
    )


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("output.mean()", "output.float().mean()"),
        ("torch.mean(output)", "torch.mean(output.float())"),
        ("torch.mean(output - 1)", "torch.mean((output - 1).float())"),
        ("(output - 1).mean()", "(output - 1).float().mean()"),
        ("-output[0].mean() / 2", "-output[0].float().mean() / 2"),
        ("torch.mean(torch.mean(output, 1))", "torch.mean(torch.mean(output.float(), 1))"),
    ],
)
def test_the_mean_of_an_output_is_taken_of_float32(loss: str, expected: str) -> None:
    """Autocast takes it in float16."""
    result = check_rewrite(
        apex(f"output = model(x)\n{BETWEEN}loss = {loss}\n{SCALE}"),
        native(f"{REGION}output = model(x)\n{BETWEEN}loss = {expected}\n{STEP}"),
    )
    assert found(result, "AMP518")


@pytest.mark.parametrize("diagonal", ["(output @ output.t()).diag()", "torch.diag(output)", "output.diagonal()"])
def test_the_diagonal_of_an_output_is_as_the_output_is(diagonal: str) -> None:
    after = rewrite(apex(f"output = model(x)\nloss = 1 - {diagonal}.mean()\n{SCALE}")).after
    assert after is not None
    assert f"loss = 1 - {diagonal}.float().mean()" in after


def test_the_function_may_be_imported_by_its_name() -> None:
    program = apex(
        f"output = model(x)\nloss = mean(output)\n{SCALE}", imports="from apex import amp\nfrom torch import mean"
    )
    result = rewrite(program)
    assert result.after is not None
    assert "loss = mean(output.float())" in result.after


@pytest.mark.parametrize(
    "lines",
    [
        "loss = (output * torch.ones(2).cuda()).mean()",
        "loss = torch.mean(torch.softmax(output, dim=1) * output)",
        "kept = output * output.float()\nloss = kept.mean()",
        "loss = torch.mean(torch.where(y > 0, output, torch.zeros(2).cuda()))",
    ],
)
def test_half_with_float32_is_float32(lines: str) -> None:
    region = lines.replace("\n", "\n    ")
    result = check_rewrite(
        apex(f"output = model(x)\n{lines}\n{SCALE}"),
        native(f"{REGION}output = model(x)\n    {region}\n{STEP}"),
    )
    assert not found(result, "AMP518")


def test_a_single_float32_number_leaves_half_as_it_is() -> None:
    for value in ("torch.tensor(2.0).cuda()", "y", "torch.nn.functional.cross_entropy(output, y)"):
        result = rewrite(apex(f"output = model(x)\nother = {value}\nloss = (output * other).mean()\n{SCALE}"))
        assert found(result, "AMP518"), value


NO_GRADIENT = [
    "weight = output.detach()\nloss = weight.mean() * F.mse_loss(output, y)",
    "loss = output.detach().mean() * F.mse_loss(output, y)",
    "with torch.no_grad():\n    near = torch.mm(output, output.t())\nloss = near.mean() * F.mse_loss(output, y)",
    "kept = []\nkept.append(output.detach())\nloss = torch.mean(kept[0]) * F.mse_loss(output, y)",
]


@pytest.mark.parametrize("lines", NO_GRADIENT)
def test_what_carries_no_gradient_is_left_as_o1_had_it(lines: str) -> None:
    """O2 and O3 gave outputs in float32, and so their mean."""
    program = apex(
        f"output = model(x)\n{lines}\n{SCALE}", imports="import torch.nn.functional as F\nfrom apex import amp"
    )
    assert not found(rewrite(program), "AMP518")
    (finding,) = found(rewrite(program.replace('"O1"', '"O2"')), "AMP518")
    assert finding.message.endswith("O2 and O3 gave it so")
    graded = program.replace("output.detach()", "output").replace("with torch.no_grad()", "if True")
    (finding,) = found(rewrite(graded), "AMP518")
    assert "becomes float32 before its mean: in float16 the gradient of that would be the loss scale" in finding.message


@pytest.mark.parametrize("pooled", ["output.mean(dim=1)", "torch.mean(output, 1)", "output.mean((1, 2), keepdim=True)"])
def test_a_mean_along_an_axis_is_left_as_o1_had_it(pooled: str) -> None:
    """Its items have a part of the gradient each, which is not the scale; where they are added up they have that."""
    program = apex(f"output = model(x)\npooled = {pooled}\nloss = torch.nn.functional.mse_loss(pooled, y)\n{SCALE}")
    assert not found(rewrite(program), "AMP518")
    (finding,) = found(rewrite(program.replace('"O1"', '"O2"')), "AMP518")
    assert finding.message.endswith("O2 and O3 gave it so")
    assert found(rewrite(apex(f"output = model(x)\nloss = {pooled}.sum()\n{SCALE}")), "AMP518")


def test_the_mean_of_a_forward_is_taken_of_float32() -> None:
    check_rewrite(
        apex(f"real = model(x).mean()\nfake = model(y).mean()\nloss = fake - real\n{SCALE}"),
        native(
            f"{REGION}real = model(x).float().mean()\n    fake = model(y).float().mean()\n    loss = fake - real\n{STEP}"
        ),
    )


def test_what_indexing_takes_from_an_output_is_one_too() -> None:
    check_rewrite(
        apex(f"output = model(x)\n{BETWEEN}scores = output[0]\nprint(y)\nloss = scores.sum()\n{SCALE}"),
        native(
            f"{REGION}output = model(x)\n{BETWEEN}scores = output[0]\nprint(y)\n{REGION}loss = scores.sum()\n{STEP}"
        ),
    )


def test_a_reduction_where_it_is_scaled_gets_a_region() -> None:
    scale = "with amp.scale_loss(output.sum(), optimizer) as scaled_loss:\n    scaled_loss.backward()\noptimizer.step()"
    check_rewrite(
        apex(f"output = model(x)\nprint(output)\n{scale}"),
        native(f"{REGION}output = model(x)\nprint(output)\n{REGION}loss = output.sum()\n{STEP}"),
    )


@pytest.mark.parametrize(
    ("loss", "expected"),
    [("sum", f"    {REGION}    loss = output.sum()"), ("mean", "    loss = output.float().mean()")],
)
def test_the_reduction_of_an_output_that_is_passed_is_float32(loss: str, expected: str) -> None:
    step = f"\ndef step(output):\n    loss = output.{loss}()\n    {SCALE.replace(chr(10), chr(10) + '    ')}\n"
    after = rewrite(apex("output = model(x)\nstep(output)", INITIALIZE + step)).after
    assert after is not None
    assert expected in after


def test_bfloat16_has_the_range_of_float32() -> None:
    after = rewrite(apex(f"output = model(x)\nloss = output.mean()\n{SCALE}"), dtype="bfloat16").after
    assert after is not None
    assert "float()" not in after


@pytest.mark.parametrize(
    "line", ["if n > 1:\n    loss = loss.mean()", "loss = loss / 4", "shown = output.mean().item()"]
)
def test_a_loss_that_is_float32_needs_no_region_of_its_own(line: str) -> None:
    before = f"output = model(x)\nloss = criterion(output, y)\n{'print(x)' + chr(10)}{line}\n"
    after = rewrite(apex(before * 1 + SCALE)).after
    assert after is not None
    assert after.count("autocast(") == 1


@pytest.mark.parametrize("given", ["output.sum()", "output, grad_outputs=torch.ones_like(output)"])
def test_the_inner_gradient_of_an_output_stays_unscaled(given: str) -> None:
    outputs, _, rest = given.partition(", ")
    grad = f"torch.autograd.grad(outputs={outputs}, inputs=x, {rest + ', ' if rest else ''}create_graph=True)[0]"
    result = rewrite(apex(f"output = model(x)\ng = {grad}\nloss = criterion(output, y) + (g ** 2).sum()\n{SCALE}"))
    assert result.after is not None
    assert grad in result.after
    assert "get_scale" not in result.after
    assert "left unscaled" in found(result, "AMP206")[0].message


def test_the_inner_gradient_of_a_loss_is_scaled() -> None:
    grad = "torch.autograd.grad(outputs={}, inputs=x, create_graph=True)[0]"
    first = "output = model(x)\nfirst_loss = criterion(output, y)\n"
    result = rewrite(apex(f"{first}g = {grad.format('first_loss')}\nloss = first_loss + (g ** 2).sum()\n{SCALE}"))
    assert result.after is not None
    assert f"{grad.format('scaler.scale(first_loss)')} / scaler.get_scale()" in result.after


@pytest.mark.parametrize(
    ("again", "cast"),
    [("print(bound.item())", False), ("print(loss, bound)", True), ("loss = loss + bound", True)],
)
def test_a_mean_that_is_only_shown_gives_no_gradient(again: str, cast: bool) -> None:
    """It had its part in the loss before."""
    source = f"""
        import torch
        from apex import amp

        from project import build, loader


        def step(model, optimizer, x):
            bound = model(x)
            loss = torch.nn.functional.mse_loss(model(x), x)
            loss = loss + bound.sum()
            bound = bound.mean()
            {again}
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()


        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            step(model, optimizer, x)
        """
    result = rewrite(source)
    assert result.after is not None
    assert ("bound.float().mean()" in result.after) is cast
    assert bool(found(result, "AMP518")) is cast


HEADS = """
class Adaptive(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4, classes))
        self.margin = torch.nn.Parameter(torch.rand(1, classes))

    def forward(self, x, y):
        return torch.mm(x, self.weight), GIVEN

class Plain(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4, classes))

    def forward(self, x, y):
        return torch.mm(x, self.weight)

def make_head(kind):
    if kind == "adaptive":
        head = Adaptive(4)
    else:
        head = Plain(4)
    return head

class Whole(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.head = make_head(kind)

    def forward(self, x, y):
        found = self.head(x, y)
        return found

model = Whole(KIND)
"""


@pytest.mark.parametrize(
    ("given", "cast"),
    [
        ("70 * (1 - torch.sum(self.margin, dim=1) / 4)", False),
        ("self.margin * 2", False),  # a parameter that no product is given is no half
        ("torch.mm(x, self.weight)", True),
    ],
)
def test_the_second_of_two_things_is_no_row_of_the_one_that_another_head_gives(given: str, cast: bool) -> None:
    lines = "output, margin = model(x, y)\nmargin = torch.mean(margin)\n"
    lines += "loss = torch.nn.functional.cross_entropy(output, y) + margin\n"
    program = apex(lines + SCALE).replace("optimizer =", HEADS.replace("GIVEN", given) + "\noptimizer =", 1)
    assert "Whole" in program
    assert bool(found(rewrite(program), "AMP518")) == cast
