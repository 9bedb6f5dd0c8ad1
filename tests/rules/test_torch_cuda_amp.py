"""Deprecated torch.cuda.amp and torch.cpu.amp names: what is rewritten, left alone, reported; the result runs."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from amp_migrate.engine import Program, migrate
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.rules.torch_names import torch_cuda_amp
from amp_migrate.sources.files import SourceFile
from tests.rules.helpers import check_manual, check_rewrite, check_untouched, rewrite
from tests.rules.programs import apex


def run(source: str, **given: Any) -> dict[str, Any]:
    """Execute a program on the CPU with deprecation warnings as errors; what it defines."""
    names: dict[str, Any] = {"torch": torch, "__name__": "program", **given}
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        exec(compile(textwrap.dedent(source), "program.py", "exec"), names)
    return names


def rewritten(source: str) -> str:
    """The text a program becomes."""
    after = rewrite(source).after
    assert after is not None
    return after


def files(targets: dict[str, str], context: dict[str, str] | None = None) -> dict[str, FileResult]:
    """Results for a small project, by path."""

    def sources(texts: dict[str, str]) -> list[SourceFile]:
        return [SourceFile(Path("/p") / name, name, textwrap.dedent(text).lstrip("\n")) for name, text in texts.items()]

    program = Program(sources(targets), sources(context or {}), Path("/p"))
    return {result.path: result for result in migrate(program, Options())}


# -- autocast --------------------------------------------------------------------------------------------------------

CALLS = [
    ("torch.cuda.amp.autocast()", 'torch.autocast("cuda")'),
    ("torch.cuda.amp.autocast(flag)", 'torch.autocast("cuda", enabled=flag)'),
    ("torch.cuda.amp.autocast((flag))", 'torch.autocast("cuda", enabled=(flag))'),
    ("torch.cuda.amp.autocast(flag and x(1, 2))", 'torch.autocast("cuda", enabled=flag and x(1, 2))'),
    ("torch.cuda.amp.autocast(enabled=flag)", 'torch.autocast("cuda", enabled=flag)'),
    (
        "torch.cuda.amp.autocast(flag, torch.bfloat16, False)",
        'torch.autocast("cuda", enabled=flag, dtype=torch.bfloat16, cache_enabled=False)',
    ),
    (
        "torch.cuda.amp.autocast(flag, cache_enabled=False,)",
        'torch.autocast("cuda", enabled=flag, cache_enabled=False,)',
    ),
    ("torch.cuda.amp.autocast(**settings)", 'torch.autocast("cuda", **settings)'),
    ("torch.cuda.amp.autocast_mode.autocast()", 'torch.autocast("cuda")'),
    ("torch.cpu.amp.autocast(flag)", 'torch.autocast("cpu", enabled=flag)'),
    ("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")'),
    ("torch.cuda.amp.GradScaler(2.0**10)", 'torch.amp.GradScaler("cuda", init_scale=2.0**10)'),
    (
        "torch.cuda.amp.GradScaler(2.0**10, 2.0, 0.5, 100, flag)",
        'torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_factor=2.0, backoff_factor=0.5, growth_interval=100, '
        "enabled=flag)",
    ),
    ("torch.cuda.amp.GradScaler(enabled=flag)", 'torch.amp.GradScaler("cuda", enabled=flag)'),
    ("torch.cuda.amp.GradScaler(**vars(x))", 'torch.amp.GradScaler("cuda", **vars(x))'),
    ("torch.cpu.amp.GradScaler(8.0)", 'torch.amp.GradScaler("cpu", init_scale=8.0)'),
    (
        "torch.cuda.amp.autocast_mode._cast(x, torch.float32)",
        'torch.amp.autocast_mode._cast(x, "cuda", torch.float32)',
    ),
    (
        "torch.cuda.amp.autocast_mode._cast(x, dtype=torch.float32)",
        'torch.amp.autocast_mode._cast(x, "cuda", dtype=torch.float32)',
    ),
    ("torch.cuda.amp.custom_bwd(f)", 'torch.amp.custom_bwd(f, device_type="cuda")'),
    ("isinstance(x, torch.cuda.amp.GradScaler)", "isinstance(x, torch.amp.GradScaler)"),
    ("isinstance(x, (torch.cuda.amp.GradScaler, int))", "isinstance(x, (torch.amp.GradScaler, int))"),
    ('hasattr(torch.cuda.amp, "autocast")', 'hasattr(torch.amp, "autocast")'),
    ('getattr(torch.cuda.amp, "autocast") is not None', 'getattr(torch.amp, "autocast") is not None'),
]


@pytest.mark.parametrize(("before", "after"), CALLS)
def test_dotted_expressions(before: str, after: str) -> None:
    check_rewrite(f"import torch\n\nvalue = {before}\n", f"import torch\n\nvalue = {after}\n")


def test_arguments_over_several_lines_keep_their_layout_and_comments() -> None:
    check_rewrite(
        """
        import torch
        with torch.cuda.amp.autocast(
            flag,  # the switch
            torch.bfloat16,
        ):
            pass
        scaler = torch.cuda.amp.GradScaler(init_scale=4.0,
                                           growth_interval=100)
        """,
        """
        import torch
        with torch.autocast(
            "cuda",
            enabled=flag,  # the switch
            dtype=torch.bfloat16,
        ):
            pass
        scaler = torch.amp.GradScaler("cuda", init_scale=4.0,
                                      growth_interval=100)
        """,
    )


def test_the_positional_scale_reaches_the_scaler() -> None:
    names = run(rewritten("import torch\nscaler = torch.cpu.amp.GradScaler(1024.0, growth_interval=7)\n"))
    assert names["scaler"].get_scale() == 1024.0
    assert names["scaler"].get_growth_interval() == 7


def test_the_positional_flag_reaches_autocast() -> None:
    text = rewritten(
        """
        import torch
        seen = []
        for flag in (True, False):
            with torch.cpu.amp.autocast(flag, torch.bfloat16):
                seen.append((torch.is_autocast_enabled("cpu"), (torch.ones(2, 2) @ torch.ones(2, 2)).dtype))
        """
    )
    assert run(text)["seen"] == [(True, torch.bfloat16), (False, torch.float32)]


def test_decorators_with_and_without_a_call() -> None:
    check_rewrite(
        """
        from torch.cuda.amp import autocast

        class Net:
            @autocast()
            def forward(self, x):
                return x

            @autocast(False)
            def loss(self, x):
                return x

            @autocast
            def predict(self, x):
                return x
        """,
        """
        from torch.amp import autocast

        class Net:
            @autocast("cuda")
            def forward(self, x):
                return x

            @autocast("cuda", enabled=False)
            def loss(self, x):
                return x

            @autocast("cuda")
            def predict(self, x):
                return x
        """,
    )


def test_a_factory_gets_its_device_through_partial() -> None:
    check_rewrite(
        """
        import argparse
        import torch
        from contextlib import suppress

        amp_autocast = torch.cuda.amp.autocast if use_amp else suppress
        with amp_autocast():
            pass
        """,
        """
        import argparse
        import functools
        import torch
        from contextlib import suppress

        amp_autocast = functools.partial(torch.autocast, "cuda") if use_amp else suppress
        with amp_autocast():
            pass
        """,
    )


def test_an_existing_partial_is_used_and_extended() -> None:
    check_rewrite(
        """
        from functools import partial
        import torch

        context = partial(torch.cuda.amp.autocast, dtype=torch.bfloat16)
        other = torch.cuda.amp.autocast
        """,
        """
        from functools import partial
        import torch

        context = partial(torch.autocast, "cuda", dtype=torch.bfloat16)
        other = partial(torch.autocast, "cuda")
        """,
    )


def test_a_scaler_class_as_a_value_needs_no_partial() -> None:
    check_rewrite(
        "import torch\nmake = torch.cuda.amp.GradScaler\nscaler = make(enabled=False)\n",
        "import torch\nmake = torch.amp.GradScaler\nscaler = make(enabled=False)\n",
    )


def test_annotations() -> None:
    check_rewrite(
        """
        import torch
        from typing import Optional
        from torch.cuda.amp import GradScaler

        def step(scaler: Optional[torch.cuda.amp.GradScaler], other: "GradScaler") -> GradScaler:
            kept: GradScaler | None = None
            return kept
        """,
        """
        import torch
        from typing import Optional
        from torch.amp import GradScaler

        def step(scaler: Optional[torch.amp.GradScaler], other: "GradScaler") -> GradScaler:
            kept: GradScaler | None = None
            return kept
        """,
    )


# -- imports ---------------------------------------------------------------------------------------------------------

IMPORTS = [
    ("from torch.cuda.amp import autocast, GradScaler", "from torch.amp import autocast, GradScaler", "autocast"),
    ("from torch.cuda.amp import autocast as ac", "from torch.amp import autocast as ac", "ac"),
    ("from torch.cuda.amp.autocast_mode import autocast", "from torch.amp import autocast", "autocast"),
    ("from torch.cuda.amp import autocast_mode", "from torch.amp import autocast_mode", "autocast_mode.autocast"),
    ("import torch.cuda.amp as amp", "import torch.amp as amp", "amp.autocast"),
    ("from torch.cuda import amp", "from torch import amp", "amp.autocast"),
    ("from torch.cuda import amp as native", "from torch import amp as native", "native.autocast"),
    (
        "from torch.cuda import amp, device_count",
        "from torch import amp\nfrom torch.cuda import device_count",
        "amp.autocast",
    ),
    ("from torch.cuda.amp import *", "from torch.amp import *", "autocast"),
    ("import torch.cuda.amp", "import torch", "torch.cuda.amp.autocast"),
    ("import torch\nimport torch.cuda.amp", "import torch", "torch.cuda.amp.autocast"),
    ("import torch, torch.cuda.amp", "import torch", "torch.cuda.amp.autocast"),
    ("import torch as th", "import torch as th", "th.cuda.amp.autocast"),
    ("from torch import cuda", "import torch", "cuda.amp.autocast"),
]


@pytest.mark.parametrize(("before", "after", "name"), IMPORTS)
def test_imports_move_and_none_is_left_dead(before: str, after: str, name: str) -> None:
    written = name.replace("cuda.amp.", "") if name.startswith(("torch.", "th.")) else name
    written = "torch.autocast" if name.startswith("cuda.") else written
    result = check_rewrite(
        f"{before}\n\nwith {name}(flag):\n    print(device_count)\n",
        f'{after}\n\nwith {written}("cuda", enabled=flag):\n    print(device_count)\n',
    )
    assert result.status == "migrated"


def test_an_import_keeps_its_parentheses_and_comments() -> None:
    check_rewrite(
        """
        from torch.cuda.amp import (
            GradScaler,  # loss scale
            autocast,
        )  # native

        scaler = GradScaler()
        """,
        """
        from torch.amp import (
            GradScaler,  # loss scale
            autocast,
        )  # native

        scaler = GradScaler("cuda")
        """,
    )


def test_imports_inside_functions_and_guards() -> None:
    check_rewrite(
        """
        import torch

        try:
            from torch.cuda.amp import autocast
            HAS_AMP = True
        except ImportError:
            HAS_AMP = False

        def train():
            from torch.cuda.amp import GradScaler

            scaler = GradScaler(4.0)
            with autocast(HAS_AMP):
                return scaler
        """,
        """
        import torch

        try:
            from torch.amp import autocast
            HAS_AMP = True
        except ImportError:
            HAS_AMP = False

        def train():
            from torch.amp import GradScaler

            scaler = GradScaler("cuda", init_scale=4.0)
            with autocast("cuda", enabled=HAS_AMP):
                return scaler
        """,
    )


def test_a_stand_in_for_torch_without_amp_goes() -> None:
    result = check_rewrite(
        """
        try:
            from torch.cuda.amp import autocast
        except ImportError:
            from contextlib import contextmanager

            @contextmanager
            def autocast(enabled=True):
                yield

        with autocast(enabled=flag):
            pass
        """,
        """
        from torch.amp import autocast

        with autocast("cuda", enabled=flag):
            pass
        """,
    )
    assert any(f.review == "look" and "stand-in" in f.message for f in result.findings)


def test_a_stand_in_behind_a_version_test_is_pointed_out() -> None:
    result = check_rewrite(
        """
        if torch_version >= (1, 6):
            from torch.cuda.amp import autocast
        else:
            def autocast(enabled=True):
                return nothing()

        with autocast():
            pass
        """,
        """
        if torch_version >= (1, 6):
            from torch.amp import autocast
        else:
            def autocast(enabled=True):
                return nothing()

        with autocast("cuda"):
            pass
        """,
    )
    assert any(f.line == 4 and f.review == "look" for f in result.findings)


def test_line_endings_stay() -> None:
    result = rewrite("from torch.cuda.amp import autocast\r\n\r\nwith autocast(flag):\r\n    pass\r\n")
    assert result.after == (
        'from torch.amp import autocast\r\n\r\nwith autocast("cuda", enabled=flag):\r\n    pass\r\n'
    )


# -- custom_fwd, custom_bwd and subclasses ---------------------------------------------------------------------------


def test_custom_functions_work_as_before() -> None:
    text = rewritten(
        """
        import torch
        from torch.cuda.amp import custom_bwd, custom_fwd


        class Square(torch.autograd.Function):
            @staticmethod
            @custom_fwd(cast_inputs=torch.float32)
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @custom_bwd
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return 2 * x * grad


        x = torch.tensor([3.0], requires_grad=True)
        Square.apply(x).backward()
        """
    )
    assert '@custom_fwd(cast_inputs=torch.float32, device_type="cuda")' in text
    assert '@custom_bwd(device_type="cuda")' in text
    assert run(text)["x"].grad.item() == 6.0


def test_a_bare_custom_fwd_becomes_a_call() -> None:
    check_rewrite(
        "import torch\n\n@torch.cuda.amp.custom_fwd\ndef forward(ctx, x):\n    return x\n",
        'import torch\n\n@torch.amp.custom_fwd(device_type="cuda")\ndef forward(ctx, x):\n    return x\n',
    )


def test_a_subclass_hands_its_arguments_on_by_name() -> None:
    text = rewritten(
        """
        import torch

        class Scaler(torch.cuda.amp.GradScaler):
            def __init__(self, scale):
                super().__init__(scale, enabled=True)

            def unscale_(self, optimizer):
                return super().unscale_(optimizer)

        class Region(torch.cuda.amp.autocast):
            def __init__(self, flag):
                super().__init__(flag)
        """
    )
    assert "class Scaler(torch.amp.GradScaler):" in text
    assert 'super().__init__("cuda", init_scale=scale, enabled=True)' in text
    assert "class Region(torch.autocast):" in text
    assert 'super().__init__("cuda", enabled=flag)' in text
    assert run(text)["Region"](False).device == "cuda"


# -- left alone ------------------------------------------------------------------------------------------------------

CURRENT = [
    'import torch\nwith torch.autocast("cuda", enabled=flag):\n    pass\n',
    'from torch.amp import GradScaler, autocast\nwith autocast("cuda"):\n    scaler = GradScaler("cuda")\n',
    "def autocast(flag):\n    return flag\n\nautocast(True)  # not torch.cuda.amp's\n",
    "import other.cuda.amp\nfrom mine.cuda import amp\nwith amp.autocast(flag):\n    pass\n",
    "def f(amp):\n    return amp.autocast(1), amp.GradScaler(2)  # torch.cuda.amp\n",
    '"""Uses torch.cuda.amp.autocast()."""\nname = "torch.cuda.amp"\n',
    "import torch\nif hasattr(torch.cuda, 'amp'):\n    print('torch.cuda.amp')\n",
    "try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    from torch.cuda.amp import GradScaler\n"
    "GradScaler(enabled=True)\n",
    "from torch.cuda import device_count, memory\nprint(device_count(), memory)\n",
]


@pytest.mark.parametrize("source", CURRENT)
def test_current_and_unrelated_names_stay(source: str) -> None:
    check_untouched(source)


# -- reported --------------------------------------------------------------------------------------------------------

UNDECIDED = [
    "import torch\ntorch.cuda.amp.autocast(*args)\n",
    "import torch\nhelper(torch.cuda.amp)\n",
    "import torch\nadd(module=torch.cuda.amp, name='GradScaler', value=torch.cuda.amp.GradScaler)\n",
    "import torch\nadd(torch.cuda.amp, torch.cuda.amp.autocast)\n",
    "from torch.cuda import amp\nself.amp = amp\nwith amp.autocast():\n    pass\n",
    "import torch\ncontext = torch.cuda.amp.autocast\nwith context(flag):\n    pass\n",
    "import torch\nclass Region(torch.cuda.amp.autocast):\n    pass\n",
    "import torch\nclass S(torch.cuda.amp.GradScaler):\n    pass\nS(4.0)\n",
    "import torch\nclass S(torch.cuda.amp.GradScaler):\n    def __init__(self, *a):\n        super().__init__(*a)\n",
    "import torch\ntorch.cuda.amp.GradScaler.__init__(x, 4.0)\n",
    "import torch\ntorch.cuda.amp.common.nothing()\n",
    "import torch\ncasts = [torch.cuda.amp.autocast_mode._cast]\n",
    'import torch\nf = getattr(torch.cuda.amp, "autocast")\n',
]


@pytest.mark.parametrize("source", UNDECIDED)
def test_what_cannot_be_decided_is_reported_and_stays(source: str) -> None:
    result = check_manual(source, "AMP905")
    assert result.after is None
    assert result.status == "blocked"


def test_uses_of_one_import_stay_together() -> None:
    result = check_manual(
        """
        import torch
        from torch.cuda.amp import GradScaler, autocast

        with autocast(*settings):
            pass
        with autocast():
            pass
        scaler = GradScaler()
        """,
        "AMP905",
    )
    assert [f.line for f in result.findings if f.status == "manual"] == [4, 6]
    assert result.after is not None
    assert "from torch.cuda.amp import autocast\n" in result.after
    assert "from torch.amp import GradScaler\n" in result.after
    assert 'scaler = GradScaler("cuda")' in result.after
    assert "with autocast():" in result.after


# -- several files ---------------------------------------------------------------------------------------------------

COMPAT = "from torch.cuda.amp import GradScaler, autocast\n"
USER = "from compat import autocast\n\nwith autocast(flag):\n    pass\n"
NEW_USER = 'from compat import autocast\n\nwith autocast("cuda", enabled=flag):\n    pass\n'


def test_a_re_exported_name_changes_with_its_uses() -> None:
    results = files({"compat.py": COMPAT, "train.py": USER})
    assert results["compat.py"].after == "from torch.amp import GradScaler, autocast\n"
    assert results["train.py"].after == NEW_USER


def test_a_name_renamed_on_its_way_is_followed() -> None:
    texts = {"compat.py": COMPAT, "names.py": "from compat import autocast as region\n"}
    results = files({**texts, "train.py": "from names import region\n\nwith region():\n    pass\n"})
    assert results["train.py"].after == 'from names import region\n\nwith region("cuda"):\n    pass\n'


def test_a_re_exported_star_changes_with_its_uses() -> None:
    results = files({"compat.py": COMPAT, "train.py": USER.replace("import autocast", "import *")})
    assert results["train.py"].after == NEW_USER.replace("import autocast", "import *")


def test_a_file_outside_the_paths_keeps_both_as_they_are() -> None:
    results = files({"train.py": USER + "import torch.cuda.amp as amp\namp.GradScaler()\n"}, {"compat.py": COMPAT})
    assert [f.code for f in results["train.py"].findings if f.status == "manual"] == ["AMP905"]
    assert "autocast(flag)" in (results["train.py"].after or "")
    results = files({"compat.py": COMPAT}, {"train.py": USER})
    assert results["compat.py"].after == "from torch.amp import GradScaler\nfrom torch.cuda.amp import autocast\n"
    assert [f.code for f in results["compat.py"].findings if f.status == "manual"] == ["AMP905"]


# -- the examples that the documentation shows -----------------------------------------------------------------------


@pytest.mark.parametrize("code", torch_cuda_amp.CODES, ids=lambda code: code.code)
def test_examples_hold(code: Any) -> None:
    for example in code.examples:
        before, after = (f"import torch\n\n{text}{tail(text)}" for text in (example.before, example.after))
        assert rewrite(before).after == after


def tail(text: str) -> str:
    """What completes an example that ends in a header."""
    if text.endswith(":\n"):
        return "    pass\n"
    return "def forward(ctx, x):\n    return x\n" if text.startswith("@") else ""


@pytest.mark.parametrize(
    "use",
    [
        "if context is torch.cuda.amp.autocast:\n    print(1)",
        "if context in (torch.cuda.amp.autocast, None):\n    print(1)",
        "KNOWN = [torch.no_grad, torch.cuda.amp.autocast]",
        "KNOWN = (torch.no_grad, torch.cuda.amp.autocast)",
    ],
)
def test_a_class_that_values_are_compared_with_is_left_and_reported(use: str) -> None:
    result = check_manual(f"import torch\n\n{use}\n", "AMP905")
    assert result.after is None


def test_a_question_whether_the_class_is_there_is_no_comparison_with_it() -> None:
    check_rewrite(
        "import torch\n\nif torch.cuda.amp.autocast is not None:\n    print(1)\n",
        "import torch\n\nif torch.autocast is not None:\n    print(1)\n",
    )


def test_torch_that_no_import_in_sight_brings_is_torch_all_the_same() -> None:
    """Else the import that another rule adds gives a second run something to do."""
    source = """
        from elsewhere import AdamW
        from apex.optimizers import FusedAdam

        def train(model, x, kind=AdamW):
            optimizer = FusedAdam(model.parameters(), lr=0.1, weight_decay=0.1)
            with torch.cuda.amp.autocast(enabled=True):
                loss = model(x).sum()
            loss.backward()
            optimizer.step()
    """
    after = rewritten(source)
    assert 'with torch.autocast("cuda", enabled=True):' in after
    assert "torch.optim.AdamW(" in after
    assert rewrite(after).after is None


def test_a_torch_that_is_something_else_is_left_alone() -> None:
    check_untouched(
        """
        def light(torch, tunnel):
            with torch.cuda.amp.autocast():
                return tunnel
        """
    )


@pytest.mark.parametrize(
    ("use", "told", "review"),
    [
        ("register(name='scaler', value=torch.cuda.amp.GradScaler)", "whoever calls what is handed on", "look"),
        ("def f(s: torch.cuda.amp.GradScaler): ...", "current name", "as-is"),
        ("isinstance(x, torch.cuda.amp.GradScaler)", "current name", "as-is"),
    ],
)
def test_a_class_that_is_no_call_is_not_said_to_be_given_a_device(use: str, told: str, review: str) -> None:
    (finding,) = (f for f in rewrite(f"import torch\n\n{use}\n").findings if f.code == "AMP902")
    assert told in finding.message
    assert "with the device type" not in finding.message
    assert finding.review == review


CHANGED_IMPORT = """
import torch
{}

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


def test_calls_of_apex_under_the_name_of_torch_are_said_to_be_apexs() -> None:
    result = check_manual(CHANGED_IMPORT.format("from torch.cuda import amp"), "AMP906")
    said = [(f.code, f.line) for f in result.findings if f.status == "manual"]
    assert said == [("AMP906", 4), ("AMP906", 7)]
    assert result.after is None


def test_with_the_import_put_right_the_program_is_migrated() -> None:
    result = rewrite(CHANGED_IMPORT.format("from apex import amp"))
    assert result.after is not None
    assert not [f for f in result.findings if f.status == "manual"]


def test_native_amp_under_another_name_beside_that_of_apex() -> None:
    native_too = "\n\ndef other(x):\n    with native.autocast():\n        return model(x)\n"
    result = rewrite(apex(imports="from torch.cuda import amp as native\nfrom apex import amp", tail=native_too))
    assert result.after is not None
    assert "apex" not in result.after
    assert not [f for f in result.findings if f.status == "manual"]
