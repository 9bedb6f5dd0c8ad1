"""Autograd functions of the program whose backward computes."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import check_files, check_rewrite, rewrite
from tests.rules.trained import check_trained

LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    clip_grad_norm_(amp.master_params(optimizer), 1.0)
    optimizer.step()
"""
TRAIN = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n' + LOOP

PRODUCT = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x.mm(weight.t())

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return {grads}


class Dense(torch.nn.Linear):
    def forward(self, x):
        return Product.apply(x, self.weight) + self.bias


model = torch.nn.Sequential(torch.nn.Linear(4, 8), Dense(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

REPEATED = """
class Repeat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, x, *params):
        ctx.run, ctx.params = run, params
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_(True)
        with torch.enable_grad():
            again = ctx.run(x)
        grads = torch.autograd.grad(again, (x, *ctx.params), grad)
        return (None, *grads)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())

    def forward(self, x):
        return Repeat.apply(self.inner, x, *self.inner.parameters())


model = torch.nn.Sequential(torch.nn.Linear(4, 8), Block(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    "definitions",
    [
        PRODUCT.format(grads="grad.mm(weight), grad.t().mm(x)"),
        PRODUCT.format(grads="grad @ weight, grad.t() @ x"),
        REPEATED,
    ],
)
def test_its_backward_runs_as_its_forward_did(definitions: str) -> None:
    after = check_trained(definitions + TRAIN)
    assert after.count('@staticmethod\n    @torch.amp.custom_fwd(device_type="cpu")\n    def forward(') == 1
    assert after.count('@staticmethod\n    @torch.amp.custom_bwd(device_type="cpu")\n    def backward(') == 1


def test_a_helper_computes_for_it() -> None:
    helper = "def gradients(grad, x, weight):\n    return torch.matmul(grad, weight), torch.matmul(grad.t(), x)\n\n\n"
    after = check_trained(helper + PRODUCT.format(grads="gradients(grad, x, weight)") + TRAIN)
    assert "custom_bwd" in after


INNER = """
class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad, weight):
        ctx.save_for_backward(weight)
        return grad.mm(weight)

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return {twice}


inner = Inner.apply
"""
OUTER = """
class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x.mm(weight.t())

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return {called}(grad, weight), None


class Dense(torch.nn.Linear):
    def forward(self, x):
        return Outer.apply(x, self.weight) + self.bias


model = torch.nn.Sequential(torch.nn.Linear(4, 8), Dense(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize("called", ["Inner.apply", "inner"])
@pytest.mark.parametrize(("twice", "both"), [("grad.mm(weight.t()), None", 2), ("None, None", 1)])
def test_another_function_computes_for_it(called: str, twice: str, both: int) -> None:
    """The inner forward runs in the outer backward, where nothing is cast unless that runs as its own forward did."""
    after = check_trained(INNER.format(twice=twice) + OUTER.format(called=called) + TRAIN)
    assert after.count("custom_fwd") == after.count("custom_bwd") == both


SETUP = """
import torch
from apex import amp
{definitions}
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
criterion = torch.nn.MSELoss()
loader = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


def program(definitions: str) -> str:
    return SETUP.format(definitions=textwrap.dedent(definitions))


@pytest.mark.parametrize(
    "definitions",
    [
        # arithmetic alone is done in the dtype of what it is given
        """
        class Swish(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * torch.sigmoid(x)

            @staticmethod
            def backward(ctx, grad):
                s = torch.sigmoid(ctx.saved_tensors[0])
                return grad * s * (1 + ctx.saved_tensors[0] * (1 - s))
        """,
        # it has decided for itself
        """
        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return x.mm(weight)

            @staticmethod
            @torch.amp.custom_bwd(device_type="cuda")
            def backward(ctx, grad):
                x, weight = ctx.saved_tensors
                return grad.mm(weight.t()), x.t().mm(grad)
        """,
        """
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return x.mm(weight)

            @staticmethod
            def backward(ctx, grad):
                x, weight = ctx.saved_tensors
                with torch.autocast("cuda", dtype=torch.float16):
                    return grad.mm(weight.t()), x.t().mm(grad)
        """,
        # no autograd function
        """
        class Product:
            @staticmethod
            def forward(ctx, x, weight):
                return x.mm(weight)

            @staticmethod
            def backward(ctx, grad):
                return grad.mm(grad)
        """,
    ],
)
def test_left_alone(definitions: str) -> None:
    result = rewrite(program(definitions))
    assert result.after is not None
    assert textwrap.dedent(definitions) in result.after
    assert not [f for f in result.findings if f.code == "AMP520"]


def test_a_context_that_is_set_up_elsewhere_is_told() -> None:
    result = rewrite(
        program(
            """
            class Product(torch.autograd.Function):
                @staticmethod
                def forward(x, weight):
                    return x.mm(weight)

                @staticmethod
                def setup_context(ctx, inputs, output):
                    ctx.save_for_backward(*inputs)

                @staticmethod
                def backward(ctx, grad):
                    x, weight = ctx.saved_tensors
                    return grad.mm(weight.t()), x.t().mm(grad)
            """
        )
    )
    assert [(f.status, f.review) for f in result.findings if f.code == "AMP520"] == [("note", "review")]
    assert result.after is not None
    assert "custom_fwd" not in result.after


FUNCTION = """
import torch
from torch.autograd import Function


class Product(Function):
\t@staticmethod
\tdef forward(ctx, x, weight):
\t\tctx.save_for_backward(x, weight)
\t\treturn x.mm(weight)

\t@staticmethod
\t@torch.autograd.function.once_differentiable
\tdef backward(ctx, grad):
\t\tx, weight = ctx.saved_tensors
\t\treturn grad.mm(weight.t()), x.t().mm(grad)
"""


def test_in_another_file_with_its_indentation() -> None:
    train = program("from ops import Product\n")
    texts = check_files({"train.py": train, "ops.py": FUNCTION, "aside.py": FUNCTION.replace("Product", "Aside")})
    assert '\t@staticmethod\n\t@torch.amp.custom_fwd(device_type="cuda")\n\tdef forward(' in texts["ops.py"]
    assert '\t@staticmethod\n\t@torch.amp.custom_bwd(device_type="cuda")\n\t@torch.autograd.f' in texts["ops.py"]
    assert "custom" not in texts["aside.py"]  # nothing ties it to the training


def test_two_programs_that_share_one() -> None:
    train = program("from ops import Product\n")
    texts = check_files({"one.py": train, "two.py": train, "ops.py": FUNCTION})
    assert texts["ops.py"].count("custom_fwd") == texts["ops.py"].count("custom_bwd") == 1


def test_line_ends_stay() -> None:
    before = program("") + FUNCTION.replace("import torch\n", "")
    result = rewrite(before.replace("\n", "\r\n"))
    assert result.after is not None
    assert result.after.count("\n") == result.after.count("\r\n")
    check_rewrite(before.replace("\n", "\r\n"), result.after)
