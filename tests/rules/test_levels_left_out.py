"""Levels that a run may leave open: what is said where one is None (AMP110), and where others may give it (AMP112)."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files

OPTION = """
    import argparse
    import torch
    from apex import amp
    from project import loader, make

    parser = argparse.ArgumentParser()
    parser.add_argument("--level", default=None)
    parser.add_argument("--fp16", action="store_true")
    args = parser.parse_args()
    model, optimizer = make()
    if {guard}:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    for x, y in loader:
        optimizer.zero_grad()
        loss = model(x).sum()
        if {guard}:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("guard", "raised"),
    [
        ("args.fp16", True),
        ('args.level != "O0"', True),
        ("args.fp16 or args.level", True),
        ("args.level is not None", False),
        ("args.level", False),
        ("args.fp16 and args.level is not None", False),
        ("not args.level is None", False),
        ('args.level in ("O1", "O2")', False),
    ],
)
def test_a_level_that_is_asked_for_never_comes_to_apex_as_none(guard: str, raised: bool) -> None:
    result = rewrite(OPTION.format(guard=guard))
    (finding,) = [f for f in result.findings if f.code == "AMP110"]
    more = "; without --level, which has no default, Apex raised, and that counts as on now"
    assert finding.message == "replaced by a GradScaler" + more * raised
    assert finding.review == ("look" if raised else "as-is")


LIBRARY = """
    import torch
    from apex import amp


    class Learner:
        def __init__(self, model):
            self.model = model

        def {name}(self, optimizer, loader, fp16=False, level="O1"):
            if fp16:
                self.model, optimizer = amp.initialize(self.model, optimizer, opt_level={level})
            for x, y in loader:
                optimizer.zero_grad()
                loss = self.model(x).sum()
                if fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
    """
USE = """
    from library import Learner
    from project import loader, make

    model, optimizer = make()
    Learner(model).{name}(optimizer, loader, fp16=True)
    """


@pytest.mark.parametrize(
    ("name", "level", "told"),
    [("fit", "level", True), ("fit", '"O1"', False), ("_fit", "level", False)],
)
def test_whoever_calls_a_library_may_ask_for_o2(name: str, level: str, told: bool) -> None:
    files = {"library.py": LIBRARY.format(name=name, level=level), "use.py": USE.format(name=name)}
    found = [f for f in rewrite_files(files)["library.py"].findings if f.code == "AMP112"]
    assert [f.message.startswith("O2 and O3, where asked for at run time, now mean autocast") for f in found] == [
        True
    ] * told


def test_a_function_of_a_script_is_given_what_the_script_says() -> None:
    use = (
        USE.format(name="fit")
        .replace("from library", "# from")
        .replace("    model, o", '    if __name__ == "__main__":\n        model, o')
    )
    source = LIBRARY.format(name="fit", level="level") + use.replace("    Learner", "        Learner")
    result = rewrite(source)
    assert result.after is not None
    assert not [f for f in result.findings if f.code == "AMP112"]
