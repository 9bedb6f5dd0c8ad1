"""Half with a float32 tensor gives float32, wherever that comes from; half with anything else may be half."""

from __future__ import annotations

import pytest

from tests.audit.test_escapes import found

FLOATS = [
    "y.float()",
    "torch.zeros(4, 2).cuda()",
    "torch.zeros(4, 2, dtype=torch.float, device='cuda')",
    "torch.ones(4, 2, dtype=torch.float32).cuda()",
    "y.float() - load(y)",
    "load(y) * y.float()",
]


@pytest.mark.parametrize("other", FLOATS)
def test_half_with_float32_is_float32(other: str) -> None:
    for then in ("", "other[y <= 0] = 0.0\n    ", "other[0] = -1\n    "):
        lines = f"other = {other}\n    {then}PLACE"
        assert not found("O2", lines.replace("PLACE", "p = torch.sigmoid(out - other)"))
        assert found("O2", lines.replace("PLACE", "p = torch.sigmoid(out - 1)"))


@pytest.mark.parametrize("other", ["2 * y.long()", "1.5", "torch.zeros(4, 2, dtype=torch.long)", "out.detach()"])
def test_half_with_what_is_not_float32_stays_half(other: str) -> None:
    assert found("O2", f"other = {other}\n    p = torch.sigmoid(out - other)")


def test_a_number_that_is_written_into_a_tensor_says_nothing_of_it() -> None:
    """It was taken for a number itself."""
    lines = "other = 1 / (y + 1e-8)\n    other[y <= 0] = 0.0\n    p = torch.sigmoid(out - other)"
    assert not found("O2", lines)
    assert found("O2", "out[y <= 0] = 0.0\n    p = torch.sigmoid(out)")


def test_half_written_into_a_float32_buffer_is_float32() -> None:
    for made in ("torch.zeros(8, 2, dtype=torch.float)", "torch.zeros(8, 2)"):
        assert not found("O2", f"kept = {made}\n    kept[:4] = out\n    p = torch.sigmoid(kept)")
    assert found(
        "O2", "kept = torch.zeros(8, 2, dtype=torch.half)\n    kept[:4] = out\n    torch.save(kept[:4] * out, 'p')"
    )


def test_what_the_program_itself_makes_half_was_half_for_other_ranks_too() -> None:
    made = "kept = torch.zeros(8, 2, dtype=torch.float16)\n    kept[:4] = out.half()\n    "
    assert not found("O1", f"{made}every = hvd.allgather(kept)")
    assert not found("O1", "every = hvd.allgather(out.half())")
    assert found("O1", f"{made}every = scored.by(kept)")  # which may compute in it what O1 ran in float32
    assert found("O2", "every = hvd.allgather(out)")


@pytest.mark.parametrize(
    ("given", "raises"), [("out, torch.zeros(4, 2).cuda()", True), ("out, y", False), ("out, 0.5", False)]
)
def test_code_out_of_sight_that_gets_half_and_float32_may_raise(given: str, raises: bool) -> None:
    (doubt,) = found("O1", f"alike = scored.by({given})")
    assert ("it raises where it takes tensors of one dtype alone" in doubt.message) is raises


def test_what_comes_of_a_model_and_of_a_cast_of_the_program_is_said_to_come_of_the_model() -> None:
    (doubt,) = found("O1", "views = [y.half()]\n    views.append(out)\n    alike = scored.by(views[1])")
    assert "the program itself" not in doubt.message
