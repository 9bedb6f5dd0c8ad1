"""`multi_tensor_applier`: its uses in gradient clipping become torch._foreach functions, all of a file or none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.rules.helpers import check_rewrite, rewrite
from tests.rules.programs import found

CLIPPER = """
    import torch
    from apex.multi_tensor_apply import multi_tensor_applier


    class Clipper:
        def __init__(self, max_norm):
            self.max_norm = max_norm
            if multi_tensor_applier.available:
                import amp_C
                self._overflow_buf = torch.cuda.IntTensor([0])
                self.l2norm = amp_C.multi_tensor_l2norm
                self.scale = amp_C.multi_tensor_scale
            else:
                raise RuntimeError("needs cuda extensions")

        def step(self, parameters):
            grads = [p.grad for p in parameters if p.grad is not None]
            norm, _ = multi_tensor_applier(self.l2norm, self._overflow_buf, [grads], False)
            norm = norm.item()
            if norm == float("inf"):
                return
            coef = self.max_norm / (norm + 1e-6)
            if coef < 1:
                multi_tensor_applier(
                    self.scale,
                    self._overflow_buf,
                    [grads, grads],
                    coef,
                )
"""
NATIVE = """
    import torch


    class Clipper:
        def __init__(self, max_norm):
            self.max_norm = max_norm

        def step(self, parameters):
            grads = [p.grad for p in parameters if p.grad is not None]
            norm = torch.stack([t.norm(dtype=torch.float32) for t in grads]).norm()
            norm = norm.item()
            if norm == float("inf"):
                return
            coef = self.max_norm / (norm + 1e-6)
            if coef < 1:
                torch._foreach_mul_(grads, coef)
"""


def check_kept(source: str) -> None:
    """Assert that a file stays with Apex's kernels, which still ship, and says so."""
    result = rewrite(source)
    assert result.after is None
    told = found(result, "AMP642")
    assert told
    assert {(f.status, f.review) for f in told} == {("note", "review")}
    assert all("Apex stays installed" in f.message for f in told)
    assert not [f for f in result.findings if f.status == "manual"]


def test_a_kernel_that_is_called_by_itself_is_kept_and_told() -> None:
    check_kept(
        "import amp_C  # of apex\n\n\ndef norm(buf, grads):\n    return amp_C.multi_tensor_l2norm(65536, buf, [grads], False)\n"
    )


def test_a_clipper_is_rewritten_in_place() -> None:
    result = check_rewrite(CLIPPER, NATIVE)
    assert {(f.status, f.review) for f in found(result, "AMP642")} == {("done", "look")}


@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_it_clips_as_torch_does(max_norm: float) -> None:
    after = rewrite(CLIPPER).after
    assert after is not None
    names: dict[str, Any] = {}
    exec(after, names)
    torch.manual_seed(0)
    mine = [
        torch.nn.Parameter(torch.randn(3, 4)),
        torch.nn.Parameter(torch.randn(5)),
        torch.nn.Parameter(torch.ones(1)),
    ]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in mine]
    for a, b in zip(mine[:2], theirs[:2], strict=True):
        a.grad = torch.randn_like(a)
        b.grad = a.grad.clone()
    names["Clipper"](max_norm).step(mine)
    torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    for a, b in zip(mine[:2], theirs[:2], strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    assert mine[2].grad is None
    mine[0].grad = torch.full_like(mine[0], float("inf"))
    before = mine[1].grad.clone()  # type: ignore[union-attr]
    names["Clipper"](max_norm).step(mine)
    assert torch.equal(before, mine[1].grad)  # type: ignore[arg-type]


def test_a_running_average_of_weights() -> None:
    source = """
        import torch
        import amp_C
        from apex.multi_tensor_apply import multi_tensor_applier


        def average(mean, weights, decay):
            buf = torch.cuda.IntTensor([0])
            multi_tensor_applier(amp_C.multi_tensor_axpby, buf, [mean, weights, mean], decay, 1 - decay, -1)
            return multi_tensor_applier(amp_C.multi_tensor_l2norm, buf, [mean])[0].item()
    """
    result = check_rewrite(
        source,
        """
        import torch


        def average(mean, weights, decay):
            torch._foreach_mul_(mean, decay)
            torch._foreach_add_(mean, weights, alpha=1 - decay)
            return torch.stack([t.norm(dtype=torch.float32) for t in mean]).norm().item()
        """,
    )
    assert result.after is not None
    names: dict[str, Any] = {}
    exec(result.after, names)
    mean, weights = [torch.ones(2), torch.ones(3)], [torch.full((2,), 3.0), torch.zeros(3)]
    expected = [0.75 * a + 0.25 * b for a, b in zip(mean, weights, strict=True)]
    norm = names["average"](mean, weights, 0.75)
    for a, b in zip(mean, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert norm == pytest.approx(torch.cat(expected).norm().item())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("coef < 1:", "coef < 1 and not self._overflow_buf.item():"),  # the flag is read
        ("[grads], False", "[grads], True"),  # the norm of each tensor
        ("norm, _ =", "norm, norms ="),
        ("[grads, grads]", "[grads, copies]"),  # scaled into another list
        ("amp_C.multi_tensor_scale", "amp_C.multi_tensor_lamb"),
        ("norm.item()", "norm[0].item()"),
        ("self._overflow_buf = torch", "self._overflow_buf = self.other = torch"),
        ('raise RuntimeError("needs cuda extensions")', "self.scale = slow_scale"),
        ("self.scale = amp_C", "self.scale = kernels or amp_C"),
    ],
)
def test_what_is_not_understood_is_left_whole(old: str, new: str) -> None:
    source = CLIPPER.replace(old, new)
    if "norms" in new:
        source = source.replace("norm = norm.item()", "norm = norms.sum() * norm.item()")
    assert source != CLIPPER
    check_kept(source)


@pytest.mark.parametrize(
    ("made", "read"), [("buf = torch.cuda.IntTensor([0])", "buf.item()"), ("buf, big = torch.zeros(2)", "big")]
)
def test_each_function_has_a_flag_of_its_own(made: str, read: str) -> None:
    """One function never reads its flag, the other one does, or makes something else with it."""
    check_kept(
        f"""
        import torch
        import amp_C
        from apex.multi_tensor_apply import multi_tensor_applier


        def plain(grads):
            buf = torch.cuda.IntTensor([0])
            multi_tensor_applier(amp_C.multi_tensor_scale, buf, [grads, grads], 0.5)


        def checked(grads):
            {made}
            multi_tensor_applier(amp_C.multi_tensor_scale, buf, [grads, grads], 0.5)
            return {read}
        """
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_norm_of_half_tensors_is_float32_as_the_kernel_gave_it(dtype: torch.dtype) -> None:
    source = """
        import torch
        import amp_C
        from apex.multi_tensor_apply import multi_tensor_applier


        def norm_of(weights):
            buf = torch.cuda.IntTensor([0])
            norm, _ = multi_tensor_applier(amp_C.multi_tensor_l2norm, buf, [weights], False)
            return norm
    """
    after = rewrite(source).after
    assert after is not None
    names: dict[str, Any] = {}
    exec(after, names)
    weights = [torch.full((1000,), 1000.0, dtype=dtype), torch.full((500,), 1000.0, dtype=dtype)]
    norm = names["norm_of"](weights)
    assert norm.dtype == torch.float32
    assert (norm * norm).item() == pytest.approx(1.5e9, rel=1e-3)


def test_a_flag_for_each_branch_and_a_copy() -> None:
    source = """
        import torch
        import amp_C
        from apex.multi_tensor_apply import multi_tensor_applier


        def clip(grads, copies, limit):
            if limit > 1:
                buf = torch.cuda.IntTensor([0])
                multi_tensor_applier(amp_C.multi_tensor_scale, buf, [grads, copies], 1.0)
            else:
                buf = torch.cuda.IntTensor([0])
                multi_tensor_applier(amp_C.multi_tensor_scale, buf, [grads, grads], limit)
    """
    after = rewrite(source).after
    assert after is not None
    names: dict[str, Any] = {}
    exec(after, names)
    grads, copies = [torch.ones(2), torch.ones(3)], [torch.zeros(2), torch.zeros(3, dtype=torch.float64)]
    names["clip"](grads, copies, 0.5)
    names["clip"](grads, copies, 2)
    assert [t.tolist() for t in copies] == [t.tolist() for t in grads] == [[0.5] * 2, [0.5] * 3]
    assert "buf" not in after
