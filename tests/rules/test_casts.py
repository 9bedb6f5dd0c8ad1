"""Cast functions, their registrations and disable_casts: what is rewritten, left alone, reported; the result runs."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from amp_migrate.engine import Program, migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.rules.casts import edited_lists
from amp_migrate.rules.casts import registered as casts
from amp_migrate.sources.files import SourceFile
from tests.rules.helpers import check_manual, check_rewrite, check_untouched, rewrite

IMPORTS = "import torch\nfrom apex import amp\n\n\n"
LOOP = """
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""
NEW_LOOP = """
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def check_becomes(before: str, after: str, **options: Any) -> FileResult:
    """A file that imports torch and amp, without and with what replaces amp."""
    old, new = textwrap.dedent(before).lstrip("\n"), textwrap.dedent(after).lstrip("\n")
    return check_rewrite(IMPORTS + old, "import torch\n\n\n" + new, **options)


def run(source: str, **modules: Any) -> dict[str, Any]:
    """What a program defines once it is rewritten for the CPU and executed."""
    result = rewrite(IMPORTS + textwrap.dedent(source), device="cpu", dtype="bfloat16")
    assert result.after is not None, result.findings
    names: dict[str, Any] = {"__name__": "program", **modules}
    exec(compile(result.after, "program.py", "exec"), names)
    return names


def in_autocast(function: Any, *args: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return function(*args)


def files(texts: dict[str, str]) -> dict[str, FileResult]:
    sources = [SourceFile(Path("/p") / n, n, textwrap.dedent(t).lstrip("\n")) for n, t in texts.items()]
    return {result.path: result for result in migrate(Program(sources, (), Path("/p")), Options())}


HALF = torch.ones(2, 2, dtype=torch.bfloat16)
FULL = torch.ones(2, 2)


# -- float_function --------------------------------------------------------------------------------------------------


def test_a_float_function_runs_without_autocast_on_float32_inputs() -> None:
    names = run(
        """
        @amp.float_function
        def product(a: torch.Tensor, b: torch.Tensor):
            return a @ b
        """
    )
    product = names["product"]
    assert in_autocast(product, HALF, FULL).dtype == torch.float32
    assert in_autocast(lambda: (product(HALF, HALF), FULL @ FULL))[1].dtype == torch.bfloat16
    assert product(FULL, FULL).dtype == torch.float32


def test_the_cast_stands_below_the_docstring() -> None:
    check_becomes(
        '''
        @amp.float_function
        def norm(x, dim=1):
            """Length of vectors."""
            # squares overflow
            return x.norm(dim=dim)
        ''',
        '''
        @torch.autocast("cuda", enabled=False)
        def norm(x, dim=1):
            """Length of vectors."""
            # squares overflow
            x = x.float()
            return x.norm(dim=dim)
        ''',
    )


def test_inputs_that_may_be_something_else_are_only_cast_if_they_are_floating_point_tensors() -> None:
    names = run(
        """
        @amp.float_function
        def collect(first, second, *rest, **named):
            return use(first, second, rest, named)
        """,
        use=lambda *values: values,
    )
    number = torch.ones(2, dtype=torch.int64)
    first, second, rest, named = in_autocast(lambda: names["collect"](HALF, number, HALF, 3, key=HALF, name="x"))
    assert (first.dtype, second.dtype) == (torch.float32, torch.int64)
    assert (rest[0].dtype, rest[1]) == (torch.float32, 3)
    assert (named["key"].dtype, named["name"]) == (torch.float32, "x")


def test_class_numbers_and_plain_arguments_are_left_alone() -> None:
    check_becomes(
        """
        @amp.float_function
        def loss(logits, labels, weight=None, reduction="mean", scale: float = 1.0):
            if reduction == "none":
                return scale
            return torch.nn.functional.cross_entropy(logits, labels, weight) * scale
        """,
        """
        @torch.autocast("cuda", enabled=False)
        def loss(logits, labels, weight=None, reduction="mean", scale: float = 1.0):
            logits = logits.float()
            weight = weight.float() if torch.is_tensor(weight) and weight.is_floating_point() else weight
            if reduction == "none":
                return scale
            return torch.nn.functional.cross_entropy(logits, labels, weight) * scale
        """,
    )


def test_a_list_of_tensors_is_cast_element_by_element() -> None:
    names = run(
        """
        @amp.float_function
        def stacked(parts):
            total = 0
            for part in parts:
                total = total + part
            return total
        """
    )
    assert in_autocast(names["stacked"], [HALF, HALF]).dtype == torch.float32


def test_methods_keep_their_other_decorators() -> None:
    check_becomes(
        """
        class Pool(torch.nn.Module):
            @profile
            @amp.float_function  # the kernel needs it
            def forward(self, input, rois):
                return pool(input, rois, self.size)
        """,
        """
        class Pool(torch.nn.Module):
            @profile
            @torch.autocast("cuda", enabled=False)  # the kernel needs it
            def forward(self, input, rois):
                input, rois = input.float(), rois.float()
                return pool(input, rois, self.size)
        """,
    )


def test_a_method_that_only_declares_itself_loses_its_decorator() -> None:
    check_becomes(
        '''
        class Loss:
            @abstractmethod
            @amp.float_function
            def compute(self, prediction, target):
                """To be overridden."""
        ''',
        '''
        class Loss:
            @abstractmethod
            def compute(self, prediction, target):
                """To be overridden."""
        ''',
    )


# -- half_function, promote_function ---------------------------------------------------------------------------------


def test_a_half_function_casts_under_autocast_only() -> None:
    names = run(
        """
        @amp.half_function
        def gate(x, weight):
            return x @ weight
        """
    )
    assert in_autocast(names["gate"], FULL, FULL).dtype == torch.bfloat16
    assert names["gate"](FULL, FULL).dtype == torch.float32


HALF_FUNCTION = """
@amp.half_function
def gate(x, weight):
    return x @ weight
"""


def test_where_mixed_precision_is_always_on_there_is_nothing_to_test() -> None:
    check_becomes(
        HALF_FUNCTION + LOOP,
        "def gate(x, weight):\n    x, weight = x.half(), weight.half()\n    return x @ weight\n" + NEW_LOOP,
    )


def test_evaluation_in_float32_needs_the_test() -> None:
    result = rewrite(IMPORTS + HALF_FUNCTION + LOOP, eval="fp32")
    assert 'if torch.is_autocast_enabled("cuda"):\n        x, weight = x.half()' in (result.after or "")


def test_the_lower_precision_is_the_one_asked_for() -> None:
    result = rewrite(IMPORTS + HALF_FUNCTION, dtype="bfloat16", device="xpu")
    assert 'is_autocast_enabled("xpu"):\n        x, weight = x.bfloat16(), weight.bfloat16()' in (result.after or "")


def test_a_promote_function_casts_to_the_widest_input() -> None:
    names = run(
        """
        @amp.promote_function
        def both(a: torch.Tensor, b: torch.Tensor):
            return a, b
        """
    )
    assert [t.dtype for t in names["both"](HALF, FULL)] == [torch.float32, torch.float32]
    assert [t.dtype for t in names["both"](HALF, HALF)] == [torch.bfloat16, torch.bfloat16]


# -- autograd functions ----------------------------------------------------------------------------------------------

FUNCTION = """
class Scale(torch.autograd.Function):
    @staticmethod
    @amp.half_function
    def forward(ctx, x):
        seen.append((x.dtype, torch.is_autocast_enabled("cpu")))
        return x * 2

    @staticmethod
    @amp.half_function
    def backward(ctx, grad_output):
        return grad_output * 2
"""


def test_autograd_functions_use_custom_fwd_and_custom_bwd() -> None:
    seen: list[Any] = []
    names = run(FUNCTION, seen=seen)
    x = torch.ones(3, requires_grad=True)
    in_autocast(names["Scale"].apply, x).sum().backward()
    assert seen == [(torch.bfloat16, False)]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    names["Scale"].apply(x)
    assert seen[1] == (torch.float32, False)


def test_a_wrapped_apply_is_cast_by_its_function() -> None:
    seen: list[Any] = []
    source = FUNCTION.replace("    @amp.half_function\n", "") + "\nscale = amp.half_function(Scale.apply)\n"
    names = run(source, seen=seen)
    in_autocast(names["scale"], torch.ones(3))
    assert seen == [(torch.bfloat16, False)]


def test_a_backward_alone_is_cast_like_any_function() -> None:
    check_becomes(
        """
        class Op(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return kernel(x)

            @staticmethod
            @amp.float_function
            def backward(ctx, grad_output):
                return kernel_backward(grad_output.contiguous())
        """,
        """
        class Op(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return kernel(x)

            @staticmethod
            @torch.autocast("cuda", enabled=False)
            def backward(ctx, grad_output):
                grad_output = grad_output.float()
                return kernel_backward(grad_output.contiguous())
        """,
    )


# -- wrappers --------------------------------------------------------------------------------------------------------


def test_a_wrapped_kernel_becomes_a_function() -> None:
    check_becomes(
        """
        # needs float32
        nms = amp.float_function(_C.nms)


        def keep(boxes, scores):
            return nms(boxes, scores, 0.5)
        """,
        """
        # needs float32
        @torch.autocast("cuda", enabled=False)
        def nms(*args):
            args = [t.float() if torch.is_tensor(t) and t.is_floating_point() else t for t in args]
            return _C.nms(*args)


        def keep(boxes, scores):
            return nms(boxes, scores, 0.5)
        """,
    )


def test_a_wrapped_kernel_casts_what_it_is_given() -> None:
    kernel = ModuleType("kernel")
    kernel.mix = lambda *a, **k: (a, k)  # type: ignore[attr-defined]
    names = run("mix = amp.half_function(kernel.mix)\n", kernel=kernel)
    (x, number), named = in_autocast(lambda: names["mix"](FULL, 2, other=FULL))
    assert (x.dtype, number, named["other"].dtype) == (torch.bfloat16, 2, torch.bfloat16)
    (x,), _ = names["mix"](FULL)
    assert x.dtype == torch.float32


def test_a_guard_around_a_wrapper_goes() -> None:
    result = rewrite(
        """
        import torch
        from ext import _C

        try:
            from apex import amp
            nms = amp.float_function(_C.nms)
        except ImportError:
            nms = _C.nms
        """
    )
    assert result.status == "migrated"
    assert "try" not in (result.after or "")


def test_a_function_wrapped_under_its_own_name_is_cast_where_it_is_defined() -> None:
    names = run(
        """
        def product(a, b):
            return a @ b


        product = amp.float_function(product)
        """
    )
    assert in_autocast(names["product"], HALF, FULL).dtype == torch.float32


def test_calls_in_other_files_decide_whether_keywords_are_cast() -> None:
    layers = "import torch\nfrom apex import amp\nfrom ext import _C\n\nnms = amp.float_function(_C.nms)\n"
    package = "from .nms import nms\n"
    texts = {"layers/__init__.py": package, "layers/nms.py": layers}
    plain = files({**texts, "use.py": "from layers import nms as box_nms\n\nbox_nms(1, 2)\n"})["layers/nms.py"].after
    assert plain is not None
    assert "def nms(*args):" in plain
    named = files({**texts, "use.py": "from layers import nms\n\nnms(1, thresh=2)\n"})["layers/nms.py"].after
    assert named is not None
    assert "def nms(*args, **kwargs):" in named


# -- registrations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        'amp.register_half_function(torch, "einsum")',
        'amp.register_half_function(torch, "matmul")',
        'amp.register_float_function(torch, "softmax")',
        'amp.register_float_function(torch.nn.functional, "layer_norm")',
        'amp.register_float_function(module=torch, name="norm")',
        'amp.register_promote_function(torch, "cat")',
        'amp.register_half_function(torch, "softmax")',
    ],
)
def test_what_autocast_does_by_itself_needs_no_registration(call: str) -> None:
    check_becomes(f"{call}\n{LOOP}", NEW_LOOP.lstrip("\n"))


@pytest.mark.parametrize(
    ("call", "more", "review", "unused"),
    [
        ('amp.register_half_function(torch, "einsum")', "", "as-is", True),
        ('amp.register_half_function(torch, "einsum")', 'torch.einsum("ij,jk", a, b)\n', "look", False),
        ('amp.register_half_function(torch, "einsum")', "from torch import einsum\neinsum(1)\n", "look", False),
        ('amp.register_half_function(torch, "softmax")', "", "look", False),
    ],
)
def test_a_registration_of_what_nothing_uses_needs_no_look(call: str, more: str, review: str, unused: bool) -> None:
    (found,) = [
        f for f in rewrite(f"import torch\nfrom apex import amp\n{call}\n{more}{LOOP}").findings if f.code == "AMP513"
    ]
    assert found.review == review
    assert (", and nothing in sight uses it" in found.message) is unused


def test_registrations_in_a_loop_and_under_a_switch() -> None:
    source = """
    if args.fp16:
        for name in ("softmax", "norm"):
            amp.register_float_function(torch, name)
    print(torch)
    """
    check_becomes(source, "print(torch)\n")


def test_a_function_that_autocast_leaves_alone_is_cast_at_its_calls() -> None:
    names = run(
        """
        amp.register_float_function(torch, "sigmoid")


        class Head(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.act = torch.nn.Sigmoid()

            def forward(self, x):
                return self.act(x @ x), torch.sigmoid(x @ x - 1), torch.sigmoid(x.float())
        """
    )
    assert [t.dtype for t in in_autocast(names["Head"](), HALF)] == [torch.float32] * 3


def test_layers_that_a_container_calls_cast_what_comes_into_them() -> None:
    source = """
        amp.register_float_function(torch, "sigmoid")
        Gate = torch.nn.Sigmoid


        class Head(torch.nn.Module):
            def __init__(self, act=torch.nn.Sigmoid):
                super().__init__()
                self.map = torch.nn.Sequential(torch.nn.Flatten(), Gate())
                self.acts = torch.nn.ModuleDict({"a": torch.nn.Sigmoid(), "b": torch.nn.Tanh()})
                self.act = act()

            def forward(self, x):
                assert all(isinstance(m, torch.nn.Sigmoid) for m in (self.map[1], self.acts["a"], self.act))
                return self.map(x @ x), self.acts["a"](x @ x), self.act(x @ x), self.acts["b"](x @ x)
        """
    names = run(source)
    assert [t.dtype for t in in_autocast(names["Head"](), HALF)] == [torch.float32] * 3 + [torch.bfloat16]


def test_a_layer_that_casts_is_written_once_however_many_programs_ask_for_it() -> None:
    train = f'{IMPORTS}import net\n\namp.register_float_function(torch, "sigmoid")\n{LOOP}'
    net = "import torch\n\nFloatSigmoid = 1\n\n\ndef head(x):\n    return torch.nn.Sequential(torch.nn.Sigmoid())(x)\n"
    results = files({"train.py": train, "again.py": train, "net.py": net})
    assert results["net.py"].after == (
        "import torch\n\nFloatSigmoid = 1\n\n\nclass FloatSigmoid_2(torch.nn.Sigmoid):\n    def forward(self, input):\n"
        "        return super().forward(input.float())\n\n\n"
        "def head(x):\n    return torch.nn.Sequential(FloatSigmoid_2())(x)\n"
    )


def test_casts_at_calls_are_written_once() -> None:
    check_becomes(
        """
        amp.register_float_function(torch, "sigmoid")


        def f(x, y):
            return torch.sigmoid(x), torch.sigmoid(x + y), torch.sigmoid(x.float()), y.sigmoid()
        """,
        """
        def f(x, y):
            return torch.sigmoid(x.float()), torch.sigmoid((x + y).float()), torch.sigmoid(x.float()), y.sigmoid()
        """,
    )


def test_calls_in_the_files_that_the_program_imports_are_cast() -> None:
    results = files(
        {
            "train.py": f'{IMPORTS}import net\n\namp.register_float_function(torch, "sigmoid")\n{LOOP}',
            "net.py": "import torch\n\n\ndef f(x):\n    return torch.sigmoid(x)\n",
            "unrelated.py": "import torch\n\n\ndef f(x):\n    return torch.sigmoid(x)\n",
        }
    )
    assert results["net.py"].after == "import torch\n\n\ndef f(x):\n    return torch.sigmoid(x.float())\n"
    assert results["unrelated.py"].after is None


def test_a_registered_function_of_the_program_is_cast_in_its_body() -> None:
    names = run(
        """
        import sys


        def product(a, b):
            return a @ b


        amp.register_float_function(sys.modules[__name__], "product")
        """
    )
    assert in_autocast(names["product"], HALF, FULL).dtype == torch.float32
    assert sys.modules


# -- disable_casts ---------------------------------------------------------------------------------------------------


def test_disable_casts_casts_what_comes_in() -> None:
    names = run(
        """
        def scores(hidden, weight):
            with amp.disable_casts():
                return hidden.softmax(dim=-1) @ weight
        """
    )
    assert in_autocast(names["scores"], HALF, FULL).dtype == torch.float32


def test_what_is_converted_already_or_unknown_is_left() -> None:
    result = check_becomes(
        """
        def forward(self, signal, other):
            with torch.no_grad(), amp.disable_casts():
                return self.features(signal.to(torch.float), other)
        """,
        """
        def forward(self, signal, other):
            with torch.no_grad(), torch.autocast("cuda", enabled=False):
                return self.features(signal.to(torch.float), other)
        """,
    )
    assert [f.review for f in result.findings if f.code == "AMP514"] == ["look"]


def test_a_forward_where_casts_are_disabled_gets_no_region() -> None:
    evaluation = """
    with {header}:
        for x, y in loader:
            print(model(x))
    """
    before = LOOP + textwrap.dedent(evaluation.format(header="amp.disable_casts()"))
    after = NEW_LOOP + textwrap.dedent(evaluation.format(header='torch.autocast("cuda", enabled=False)'))
    check_becomes(before, after.lstrip("\n"))


EVALUATED = """
def evaluate(model):
    for x, y in loader:
        print(model(x))


def main(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    with amp.disable_casts():
        evaluate(model)
"""


def test_a_function_called_only_there_gets_no_region_either() -> None:
    after = rewrite(IMPORTS + EVALUATED).after
    assert after is not None
    assert "    for x, y in loader:\n        print(model(x))\n" in after
    assert '    with torch.autocast("cuda", enabled=False):\n        evaluate(model)\n' in after


def test_a_function_called_with_casts_and_without_is_in_a_region_where_it_is_called_with_them() -> None:
    after = rewrite(IMPORTS + EVALUATED + "    evaluate(model)\n").after
    assert after is not None
    assert "    for x, y in loader:\n        print(model(x))\n" in after
    assert after.endswith('    with torch.autocast("cuda", dtype=torch.float16):\n        evaluate(model)\n')


# -- left alone, reported --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "from mine import amp\n\n\n@amp.float_function\ndef f(x):\n    return x\n",
        "from mine import register_float_function\n\nregister_float_function(torch, 'sigmoid')  # as apex\n",
        "def disable_casts():\n    return apex\n\n\nwith disable_casts():\n    pass\n",
    ],
)
def test_unrelated_names_stay(source: str) -> None:
    check_untouched(source)


@pytest.mark.parametrize(
    "source",
    [
        "self.losses[0] = amp.half_function(self.losses[0])\n",
        "f = amp.float_function(g) if wide else g\n",
        "def half_function(fn):\n    return amp.half_function(fn)\n",
        "decorate = amp.float_function\n",
        "with open(path) as f, amp.disable_casts as g:\n    pass\n",
        "@amp.float_function\ndef f(x):\n    yield x\n",
        "@amp.float_function\ndef f(y):\n    if y:\n        return y.exp()\n",
        "@amp.promote_function\ndef f(a, b):\n    return k(a, b)\n",
        'amp.register_float_function(torch, "sigmoid")\n',
        'amp.register_float_function(torch, "einsum")\ntorch.einsum("ij,jk", a, b)\n',
        'amp.register_float_function(torch, "bmm")\ntorch.bmm(a, mat2=b)\n',
        'amp.register_float_function(torch.Tensor, "matmul")\na.matmul(b)\n',
        "amp.register_float_function(torch, name)\n",
        'amp.register_float_function(_C, "nms")\n_C.nms(a, b)\n',
        'amp.register_half_function(torch, "sigmoid")\ntorch.sigmoid(x)\n',
        'amp.register_promote_function(torch, "sigmoid")\n',
        'amp.register_float_function(torch, "sigmoid")\ntorch.sigmoid(*a)\n',
    ],
)
def test_what_cannot_be_decided_is_reported_and_stays(source: str) -> None:
    result = check_manual(IMPORTS + source, "AMP516")
    assert result.after is None


def test_a_unit_waits_for_its_casts() -> None:
    result = check_manual(IMPORTS + "use(amp.half_function(f))\n" + LOOP, "AMP516")
    assert result.after is None
    assert result.status == "blocked"


# -- edits of the op lists ----------------------------------------------------------------------------------------------

FUNCTIONAL = "amp.lists.functional_overrides"


def test_edits_that_autocast_answers_by_itself_go() -> None:
    """softmax in half for speed, as programs that train attention in float16 asked for: autocast has it in float32."""
    result = check_becomes(
        f'{FUNCTIONAL}.FP32_FUNCS.remove("softmax")\n{FUNCTIONAL}.FP16_FUNCS.append("softmax")\n{LOOP.lstrip()}',
        NEW_LOOP.lstrip(),
    )
    told = [f for f in result.findings if f.code == "AMP519"]
    assert [f.review for f in told] == ["look", "look"]
    assert all("runs in float32 under autocast" in f.message for f in told)


def test_a_list_imported_by_its_module_is_edited_for_several_functions() -> None:
    names = run(
        """
        from apex.amp.lists import functional_overrides, torch_overrides

        functional_overrides.FP32_FUNCS.extend(["sigmoid", "softmax"])
        for name in ("tanh", "exp"):
            torch_overrides.FP32_FUNCS.append(name)


        def predict(x):
            return torch.nn.functional.sigmoid(x) + torch.tanh(x)


        def train(model, optimizer, loader, criterion):
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    )
    half = torch.linspace(-2, 2, 5, dtype=torch.bfloat16)
    assert in_autocast(names["predict"], half).dtype is torch.float32
    assert "torch_overrides" not in names


def test_a_function_that_nothing_in_sight_calls_is_said_to_be_left_to_autocast() -> None:
    result = check_becomes(f'{FUNCTIONAL}.FP32_FUNCS.append("gelu")\n{LOOP.lstrip()}', NEW_LOOP.lstrip())
    told = next(f for f in result.findings if f.code == "AMP519")
    assert told.review == "review"
    assert "nothing in sight calls torch.nn.functional.gelu" in told.message


@pytest.mark.parametrize(
    "edit",
    [
        f'{FUNCTIONAL}.FP16_FUNCS.remove("linear")',
        f'{FUNCTIONAL}.FP32_FUNCS.append("linear")\ntorch.nn.functional.linear(model.x, model.w)',
        f"{FUNCTIONAL}.FP32_FUNCS.append(name)",
        f'{FUNCTIONAL}.BANNED_FUNCS.append(("gelu", "no"))',
        f'kept = {FUNCTIONAL}.FP32_FUNCS + ["gelu"]',
    ],
)
def test_edits_that_autocast_cannot_follow_keep_their_program_with_apex(edit: str) -> None:
    result = rewrite(f"{IMPORTS}{edit}\n{LOOP}")
    assert any(f.status == "manual" for f in result.findings), result.findings
    assert result.after is None


# -- the examples that the documentation shows -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [*casts.CODES, *edited_lists.CODES], ids=lambda code: code.code)
def test_examples_hold(code: Any) -> None:
    for example in code.examples:
        result = rewrite(f"{IMPORTS}{example.before}print(torch)\n")
        assert result.after == f"import torch\n\n\n{example.after}print(torch)\n", result.findings


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('amp.register_float_function(torch, "sigmoid")', True),
        ('amp.register_float_function(torch.nn.functional, "binary_cross_entropy")', True),
        ('amp.register_float_function(torch, "tanh")', False),
    ],
)
def test_what_is_registered_for_a_bce_loss_says_that_autocast_refuses_it(call: str, said: bool) -> None:
    result = rewrite(f"{IMPORTS}{call}\n{LOOP}y = torch.sigmoid(x) + torch.tanh(x)\n")
    (told,) = [f for f in result.findings if f.code == "AMP513"]
    assert ("autocast refuses it on float32 inputs too" in told.message) is said


@pytest.mark.parametrize("option", ["size=given", "scale_factor=given", "size=None, mode=given"])
def test_a_parameter_that_is_an_option_of_torchs_is_no_tensor(option: str) -> None:
    source = f"""
    import torch
    from apex import amp

    @amp.float_function
    def resize(x, given):
        return torch.nn.functional.interpolate(x, {option})
    """
    after = rewrite(source).after or ""
    assert "x = x.float()" in after
    assert "given =" not in after


ALIAS = """
try:
    from apex import amp
    float_function = amp.float_function
except ImportError:
    print("install apex to train in mixed precision")
    def float_function(func):
        return func
"""


def test_a_cast_function_under_another_name_decorates() -> None:
    program = f"import torch\n{ALIAS}\n\n@float_function\ndef product(a, b):\n    return a @ b\n"
    result = rewrite(program, device="cpu", dtype="bfloat16")
    assert result.after is not None
    assert "apex" not in result.after
    assert "float_function" not in result.after
    assert not [f for f in result.findings if f.status == "manual"]
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(result.after, "program.py", "exec"), names)
    half = torch.ones(2, 2, dtype=torch.bfloat16)
    assert in_autocast(names["product"], half, half).dtype is torch.float32


def test_a_cast_function_under_another_name_wraps() -> None:
    program = f"import torch\n{ALIAS}\nproduct = float_function(torch.matmul)\n"
    result = rewrite(program, device="cpu", dtype="bfloat16")
    assert result.after is not None
    assert "float_function" not in result.after
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(result.after, "program.py", "exec"), names)
    half = torch.ones(2, 2, dtype=torch.bfloat16)
    assert in_autocast(names["product"], half, half).dtype is torch.float32


@pytest.mark.parametrize(
    "use",
    [
        "",  # whoever imports it is not in sight
        "keep(float_function)\n",
        "for f in functions:\n    f = float_function(f)\n",
    ],
)
def test_a_cast_function_under_another_name_that_is_not_followed(use: str) -> None:
    result = rewrite(f"import torch\n{ALIAS}\n{use}")
    assert [f.code for f in result.findings if f.status == "manual"]
    assert "amp.float_function" in (result.after or ALIAS)


def test_a_cast_function_by_another_name_in_another_file() -> None:
    files = {
        "casts.py": ALIAS,
        "layers.py": "import torch\nfrom casts import float_function\n\n\n@float_function\ndef twice(x):\n    return 2 * x\n",
    }
    results = {
        r.path: r
        for r in migrate(
            Program([SourceFile(Path("/p") / n, n, t) for n, t in files.items()], (), Path("/p")), Options()
        )
    }
    assert "apex" not in (results["casts.py"].after or "apex")
    assert "float_function" not in (results["layers.py"].after or "float_function")
