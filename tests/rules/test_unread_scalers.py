"""A scaler that nothing reads is not written, and what is said of the call in whose place it would stand: AMP110."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files

HELPER = """
    from apex import amp


    def fit(model, optimizer, loader, do_apex=True, apexed=False):
        if do_apex and not apexed:
            apexed = True
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            optimizer.zero_grad()
            loss = model(x).sum()
            if apexed:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
    """
SCRIPT = """
    {imported}
    from apex import amp
    from helper import fit
    from project import loader, make

    model, optimizer = make()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    fit(model, optimizer, loader, do_apex=False, apexed=True)
    """
LOOP = """
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        with amp.scale_loss(model(x).sum(), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


def said(files: dict[str, str], path: str) -> tuple[str, list[str]]:
    result = rewrite_files(files)[path]
    return result.after or "", [f.message for f in result.findings if f.code == "AMP110"]


@pytest.mark.parametrize("imported", ["import torch", ""])
def test_a_script_whose_library_has_a_scaler_of_its_own_makes_none(imported: str) -> None:
    files = {"helper.py": HELPER, "one.py": SCRIPT.format(imported=imported), "two.py": SCRIPT.format(imported="")}
    after, messages = said(files, "one.py")
    assert "amp" not in after
    assert ("import torch" in after) is bool(imported)
    scaling = "what scales a loss has the one in place of the call at helper.py:7"
    assert messages == [f"taken out: nothing would read a GradScaler made here; {scaling}"]
    after, messages = said(files, "helper.py")
    assert after.count("GradScaler(") == 1
    assert messages == ["replaced by a GradScaler"]


def test_a_script_that_scales_itself_keeps_its_scaler_and_the_import_of_torch() -> None:
    scales = SCRIPT.format(imported="") + LOOP
    after, messages = said({"helper.py": HELPER, "one.py": scales}, "one.py")
    assert after.startswith("import torch\n")
    assert after.count("GradScaler(") == 1
    assert messages == [
        "replaced by a GradScaler",
        "taken out: the GradScaler in place of the call at line 6 serves here too",
    ]


def test_only_the_scaler_that_serves_is_named() -> None:
    source = f"""
    import torch
    from apex import amp
    from project import loader, make


    def other():
        model, optimizer = make()
    {LOOP.replace(chr(10), chr(10) + "    ")}

    model, optimizer = make()
    {LOOP}
    {LOOP}
    """
    result = rewrite(source)
    messages = [f.message for f in result.findings if f.code == "AMP110"]
    assert (result.after or "").count("GradScaler(") == 2
    second = next(
        i for i, line in enumerate(result.before.splitlines(), 1) if line.startswith("model, optimizer = amp")
    )
    assert messages[2] == f"taken out: the GradScaler in place of the call at line {second} serves here too"


def test_callers_that_only_evaluate_what_a_function_prepares_make_no_scaler() -> None:
    files = {
        "prepare.py": """
            import torch
            from apex import amp


            def prepare(model):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                return amp.initialize(model, optimizer, opt_level="O1")
        """,
        "train.py": """
            from apex import amp
            from prepare import prepare
            from project import loader, model

            model, optimizer = prepare(model)
            for x, y in loader:
                optimizer.zero_grad()
                with amp.scale_loss(model(x).sum(), optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """,
        "test.py": """
            from prepare import prepare
            from project import loader, model

            model, _ = prepare(model)
            for x, y in loader:
                print(model(x).argmax(1))
        """,
    }
    results = rewrite_files(files)
    assert "GradScaler(" in (results["train.py"].after or "")
    assert "GradScaler(" not in (results["test.py"].after or results["test.py"].before)
    (finding,) = [f for f in results["prepare.py"].findings if f.code == "AMP110"]
    assert finding.message == "taken out: the GradScaler is created by what calls this (train.py:5)"
