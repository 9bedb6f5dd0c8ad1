"""What needed Apex under a test alone does not need it in every run."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts, told

GUARDED = """
    from helpers import step

    def backward(args, optimizer, loss):
        if args.fp16:
            try:
                from apex import amp
            except ImportError:
                raise ImportError("Please install Apex")
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
    """


def test_a_guard_that_every_run_comes_by_now() -> None:
    after = """
        from helpers import step

        def backward(args, scaler, loss):
            try:
                from apex import amp
            except ImportError:
                raise ImportError("Please install Apex")
            scaler.scale(loss).backward()
        """
    assert told(doubts(GUARDED, after), "AMP133") == [(6, "refuse")]


def test_a_guard_that_stays_under_its_test() -> None:
    after = """
        from helpers import step

        def backward(args, scaler, loss):
            if args.fp16:
                try:
                    from apex import amp
                except ImportError:
                    raise ImportError("Please install Apex")
            scaler.scale(loss).backward()
        """
    assert not told(doubts(GUARDED, after), "AMP133")


def test_a_guard_under_another_test_in_the_place_of_its_own() -> None:
    after = """
        from helpers import step

        def backward(args, scaler, loss):
            if scaler.is_enabled():
                try:
                    from apex import amp
                except ImportError:
                    raise ImportError("Please install Apex")
            scaler.scale(loss).backward()
        """
    assert not told(doubts(GUARDED, after), "AMP133")


def test_an_import_that_an_early_return_kept_from_other_runs() -> None:
    before = """
        def backward(args, optimizer, loss):
            if not args.fp16:
                loss.backward()
                return
            from apex import amp
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        """
    after = """
        def backward(args, scaler, loss):
            from apex import amp
            scaler.scale(loss).backward()
        """
    (doubt,) = [d for d in doubts(before, after) if d.code == "AMP133"]
    assert (doubt.line, doubt.verdict) == (5, "refuse")
    assert "`args.fp16` held" in doubt.message


@pytest.mark.parametrize("handler", ["pass", "amp = None", 'print("no Apex")'])
def test_an_import_whose_failure_the_program_outlives(handler: str) -> None:
    before = GUARDED.replace('raise ImportError("Please install Apex")', handler)
    after = f"""
        from helpers import step

        def backward(args, scaler, loss):
            try:
                from apex import amp
            except ImportError:
                {handler}
            scaler.scale(loss).backward()
        """
    assert not [d for d in doubts(before, after) if "fails without Apex" in d.message]


def test_a_complaint_that_every_run_makes_now() -> None:
    before = """
        from apex import amp

        def check(args, native):
            if args.fp16:
                assert native, "Apex needs a GPU"
                print("checked")
        """
    after = """
        def check(args, native):
            assert native, "Apex needs a GPU"
            print("checked")
        """
    (doubt,) = [d for d in doubts(before, after) if "fails without Apex" in d.message]
    assert doubt.line == 5


@pytest.mark.parametrize("complaint", ['assert HAS, "no way"', 'if not HAS:\n        raise RuntimeError("no way")'])
def test_a_complaint_that_does_not_name_apex(complaint: str) -> None:
    top = "try:\n    from apex import amp\n    HAS = True\nexcept ImportError:\n    HAS = False\n\n"
    inner = complaint.replace("\n", "\n    ")
    loss = "with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()"
    arms = f"    if args.fp16:\n        {inner}\n        {loss}\n    else:\n        loss.backward()\n"
    before = f"def backward(args, optimizer, loss):\n{arms}"
    after = f"def backward(args, scaler, loss):\n    {complaint}\n    scaler.scale(loss).backward()\n"
    found = [d for d in doubts(top + before, top + after) if "fails without Apex" in d.message]
    assert [d.verdict for d in found] == ["refuse"]


def test_a_complaint_after_one_that_apex_is_missing() -> None:
    """Runs that the first complaint ended come to the second, and fail as they did; after a `return`, they went on."""
    top = "try:\n    from apex import amp\n    HAS = True\nexcept ImportError:\n    HAS = False\n\n"
    first = '    if fp16 and not HAS:\n        raise RuntimeError("install Apex")\n'
    after = 'def check(fp16, tpu):\n    if fp16 and tpu:\n        raise RuntimeError("no Apex on a TPU")\n'
    head, _, rest = after.partition("\n")
    assert not doubts(f"{top}{head}\n{first}{rest}", after)
    returns = first.replace('raise RuntimeError("install Apex")', "return")
    assert [d.code for d in doubts(f"{top}{head}\n{returns}{rest}", after) if "fails without" in d.message] == [
        "AMP133"
    ]
