"""Products of matrices that Apex was told to run in float32: autocast is off for each call. What is emitted is run."""

from __future__ import annotations

import pytest
import torch

from tests.rules.helpers import rewrite
from tests.rules.programs import found
from tests.rules.test_casts import FULL, HALF, IMPORTS, LOOP, NEW_LOOP, check_becomes, files, in_autocast, run

CALLS = {
    "matmul": "torch.matmul(x, x @ x)",
    "mm": "torch.mm(x, x - 1)",
    "bmm": "torch.bmm(x[None], x[None])",
    "mv": "torch.mv(x, x[0])",
    "addmm": "torch.addmm(x, x, x)",
    "baddbmm": "torch.baddbmm(x[None], x[None], x[None])",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_product_runs_in_float32_where_autocast_is_off_for_it(name: str) -> None:
    source = f"""
        amp.register_float_function(torch, "{name}")


        def score(x):
            return {CALLS[name]}, x @ x
        """
    names = run(source)
    for given in (HALF, FULL):
        product, other = in_autocast(names["score"], given)
        assert product.dtype == torch.float32
        assert other.dtype == torch.bfloat16
    torch.testing.assert_close(names["score"](FULL)[0], eval(CALLS[name], {"torch": torch, "x": FULL}))


def test_what_is_written_and_what_is_float32_already() -> None:
    source = (
        'amp.register_float_function(torch, "matmul")\n\n\ndef gram(f):\n'
        "    return torch.matmul(f.type(torch.float32), f.to(dtype=torch.float32))\n\n\n"
        "def score(a, b):\n    return torch.matmul(a, b.float())\n\n\n"
    )
    result = rewrite(IMPORTS + source + LOOP)
    assert result.after is not None
    off = 'torch.autocast("cuda", enabled=False)(torch.matmul)'
    assert f"{off}(f.type(torch.float32), f.to(dtype=torch.float32))" in result.after
    assert f"{off}(a.float(), b.float())" in result.after
    (told,) = found(result, "AMP513")
    assert "where autocast is off for it" in told.message


def test_a_function_that_runs_in_float32_as_a_whole_is_left_alone() -> None:
    source = IMPORTS + (
        'amp.register_float_function(torch, "matmul")\n\n\n@amp.float_function\ndef score(a: torch.Tensor, b: torch.Tensor):\n'
        "    return torch.matmul(a, b)\n"
    )
    result = rewrite(source + LOOP)
    assert result.after is not None
    assert "    return torch.matmul(a, b)\n" in result.after


def test_a_registration_in_a_file_that_sets_nothing_up_is_one_of_the_program_that_imports_it() -> None:
    register = 'amp.register_float_function(torch, "matmul")\n'
    net = IMPORTS + register + "\n\ndef score(a, b):\n    return torch.matmul(a, b)\n"
    tools = IMPORTS + register
    train = f"{IMPORTS}import net\nimport tools\n\n{register}{LOOP}"
    results = files({"train.py": train, "net.py": net, "tools.py": tools})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    assert results["net.py"].after is not None
    assert results["net.py"].after.count("float()") == 2
    assert 'torch.autocast("cuda", enabled=False)(torch.matmul)(a.float(), b.float())' in results["net.py"].after
    assert all("apex" not in (r.after or "") for r in results.values())


def test_a_class_of_layers_was_never_cast() -> None:
    check_becomes(
        'amp.register_float_function(torch.nn, "MaxPool2d")\nprint(torch)\n' + LOOP, "print(torch)\n" + NEW_LOOP
    )
