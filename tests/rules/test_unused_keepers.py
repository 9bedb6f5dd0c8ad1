"""What saves or loads amp's state and no program at hand uses takes a scaler from whoever is to use it, and holds none back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from amp_migrate.findings import FileResult
from tests.rules.helpers import rewrite_files
from tests.rules.programs import APEX_LOOP, apex

PROGRAM = apex(APEX_LOOP)
CLASS = """
    import torch
    from apex import amp


    class Restorer(BASE):
        def __init__(self, path, resume, **parts):
            FIRST
            self.path, self.parts = path, parts
            if resume:
                self.restore()

        def save(self):
            state = {k: v.state_dict() for k, v in self.parts.items()}
            state["amp_state"] = amp.state_dict()
            torch.save(state, self.path)

        def restore(self):
            state = torch.load(self.path)
            amp.load_state_dict(state["amp_state"])
    """
FUNCTIONS = """
    import torch
    from apex import amp


    def snapshot(model):
        return {"model": model.state_dict(), "amp": amp.state_dict()}


    def save(model, path):
        torch.save(snapshot(model), path)


    def load(model, path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        amp.load_state_dict(state["amp"])
    """


def keep(text: str, *programs: str, **more: str) -> dict[str, FileResult]:
    files = {f"{name}.py": PROGRAM for name in programs or ("one",)}
    return rewrite_files({**files, **{f"{n}.py": t for n, t in more.items()}, "keep.py": text})


@pytest.mark.parametrize("programs", [("one",), ("one", "two")])
@pytest.mark.parametrize(("base", "first"), [("object", "pass"), ("torch.nn.Module", "super().__init__()")])
def test_a_class_that_nothing_makes(tmp_path: Path, programs: tuple[str, ...], base: str, first: str) -> None:
    results = keep(CLASS.replace("BASE", base).replace("FIRST", first), *programs)
    after = results["keep.py"].after
    assert after is not None
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    (told,) = [f for f in results["keep.py"].findings if f.code == "AMP228"]
    assert told.review == "look"
    assert told.message.startswith("nothing in sight makes an object of Restorer,")
    assert all(results[f"{name}.py"].after for name in programs)
    space: dict[str, type] = {}
    exec(after, space)
    made, path = space["Restorer"], tmp_path / "state.pt"
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    made(path, False, scaler=scaler).save()
    other = torch.amp.GradScaler("cpu")
    made(path, True, other)
    assert other.get_scale() == 4.0
    made(path, False).save()  # without one: the state of none
    made(path, True, other)
    assert other.get_scale() == 4.0


def test_functions_that_nothing_calls_and_what_they_call(tmp_path: Path) -> None:
    results = keep(FUNCTIONS)
    after = results["keep.py"].after
    assert after is not None
    assert "def snapshot(model, scaler)" in after
    assert "def save(model, path, scaler=None)" in after
    space: dict[str, type] = {}
    exec(after, space)
    scaler, path, model = torch.amp.GradScaler("cpu", init_scale=4.0), tmp_path / "state.pt", torch.nn.Linear(1, 1)
    scaler.scale(torch.ones(()))
    space["save"](model, path, scaler)
    other = torch.amp.GradScaler("cpu")
    space["load"](model, path, other)
    assert other.get_scale() == 4.0
    space["load"](model, path)
    told = [f.message for f in results["keep.py"].findings if f.code == "AMP228"]
    assert [m.split(",")[0] for m in told] == ["nothing in sight calls save", "nothing in sight calls load"]


@pytest.mark.parametrize(
    "use",
    [
        "import keep\n\nkeep.save(net, 'a.pt')\n",
        "from keep import save\n\nhooks = [save]\n",
        "import keep\n\ngetattr(keep, 'save')(net, 'a.pt')\n",
    ],
)
def test_what_something_may_call_is_not_taken_for_unused(use: str) -> None:
    told = [f.message for r in keep(FUNCTIONS, more=use).values() for f in r.findings if f.code == "AMP228"]
    assert not [message for message in told if "calls save" in message]


def test_a_class_of_which_another_file_calls_a_method_is_used() -> None:
    keeper = (
        "from apex import amp\n\n\nclass State:\n    @staticmethod\n    def of():\n        return amp.state_dict()\n"
    )
    results = keep(keeper, more="from keep import State\n\nprint(State.of())\n")
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP228"]


def test_a_class_of_a_framework_that_may_make_it_is_not_taken_for_unused() -> None:
    keeper = (
        CLASS.replace("BASE", "Runner")
        .replace("FIRST", "pass")
        .replace("import torch", "import torch\n    from framework import Runner")
    )
    assert not [f for r in keep(keeper).values() for f in r.findings if f.code == "AMP228"]


def test_a_file_alone_is_rather_a_part_of_a_program() -> None:
    assert [f.code for f in rewrite_files({"keep.py": FUNCTIONS})["keep.py"].findings if f.status == "manual"]


def test_functions_of_a_script_that_sets_up_at_module_level_have_its_scaler() -> None:
    source = PROGRAM + "\n\ndef save(path):\n    torch.save({'amp': amp.state_dict()}, path)\n"
    after = rewrite_files({"train.py": source})["train.py"].after
    assert after is not None
    assert "def save(path):" in after
    assert "scaler.state_dict()" in after


def test_a_class_without_a_constructor_is_left_and_holds_no_program_back() -> None:
    keeper = "from apex import amp\n\n\nclass State:\n    def of(self):\n        return amp.state_dict()\n"
    results = keep(keeper)
    assert results["one.py"].after is not None
    (told,) = [f for f in results["keep.py"].findings if f.status == "manual"]
    assert "nothing here makes a State" in told.message


@pytest.mark.parametrize(
    "use",
    [
        "import keep\n\nhooks = [keep.save]\nhooks[0](net, 'a.pt')\n",
        PROGRAM.replace("optimizer.step()", "amp._amp_state.loss_scalers[0]._unskipped = 3\n    optimizer.step()")
        + "\nfrom keep import save\nsave(model, 'a.pt')\n",
    ],
)
def test_what_loads_the_state_waits_with_what_writes_it_in_its_file(use: str) -> None:
    results = keep(FUNCTIONS, more=use)
    assert results["keep.py"].after is None
    told = [f for f in results["keep.py"].findings if f.construct == "amp.load_state_dict"]
    assert [f.status for f in told] == ["manual"]
    assert told[0].cause is not None


MADE_BY_BASES = """
    known = []


    def register(cls):
        known.append(cls)
        return cls


    class Runner:
        EACH


    """


@pytest.mark.parametrize(
    ("each", "decorated", "last"),
    [
        ("pass", "@register\n    class", ""),
        ("def __init_subclass__(cls):\n            known.append(cls)", "class", ""),
        ("pass", "class", "made = [cls('state.pt', False) for cls in Runner.__subclasses__()]\n"),
    ],
)
def test_a_class_that_what_is_told_of_it_may_make_is_not_taken_for_unused(each: str, decorated: str, last: str) -> None:
    head, text = MADE_BY_BASES.replace("EACH", each), CLASS.replace("BASE", "Runner").replace("FIRST", "pass")
    keeper = text.replace("\n\n\n    class", f"\n{head}{decorated}", 1) + f"\n\n    {last}"
    assert not [f for f in keep(keeper)["keep.py"].findings if f.code == "AMP228"]


def test_a_class_of_data_that_nothing_makes_is_unused() -> None:
    keeper = """
        from dataclasses import dataclass
        from apex import amp


        @dataclass
        class Keeper:
            path: str

            def __init__(self, path):
                self.path = path

            def state(self):
                return {"amp": amp.state_dict()}
        """
    assert [f for f in keep(keeper)["keep.py"].findings if f.code == "AMP228"]
