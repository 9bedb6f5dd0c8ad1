"""Functions of a program that do what Apex's do, under whatever name, are migrated where they are called, and go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

GUARD = "import contextlib\n\ntry:\n    from apex import amp\nexcept ImportError:\n    amp = None\n\n\n"
PLAIN = """
@contextlib.contextmanager
def {name}(loss, *args, **kwargs):
    yield loss
"""
MIXED = {
    "handed on": """from apex import amp


def initialize(*args, **kwargs):
    return amp.initialize(*args, **kwargs)


def scale_loss(loss, optimizer, **kwargs):
    \"\"\"Scale.\"\"\"
    return amp.scale_loss(loss, optimizer, **kwargs)


def master_params(optimizer):
    return amp.master_params(optimizer)
""",
    "guarded": f"""{GUARD}def initialize(models, optimizers, *args, **kwargs):
    if amp:
        return amp.initialize(models, optimizers, *args, **kwargs)
    else:
        return models, optimizers


def scale_loss(*args, **kwargs):
    if amp is None:
        return _plain(*args, **kwargs)
    return amp.scale_loss(*args, **kwargs)

{PLAIN.format(name="_plain")}

def master_params(optimizer):
    return amp.master_params(optimizer) if amp else (p for g in optimizer.param_groups for p in g["params"])
""",
    "in the body": f"""{GUARD}def initialize(model, optimizer, **kwargs):
    if amp is not None:
        model, optimizer = amp.initialize(model, optimizer, verbosity=0, **kwargs)
    return model, optimizer


@contextlib.contextmanager
def scale_loss(loss, optimizer):
    if amp is None:
        yield loss
    else:
        with amp.scale_loss(loss, optimizer) as scaled:
            yield scaled


def master_params(optimizer):
    try:
        from apex.amp import master_params
    except ImportError:
        return (p for g in optimizer.param_groups for p in g["params"])
    return amp.master_params(optimizer)
""",
    "bound": f"""import contextlib

try:
    from apex import amp

    initialize = amp.initialize
    scale_loss = amp.scale_loss
    master_params = amp.master_params
except ImportError:

    def initialize(models, optimizers, **kwargs):
        return models, optimizers
{PLAIN.format(name="scale_loss").replace(chr(10), chr(10) + "    ").rstrip(" ")}
    def master_params(optimizer):
        return (p for g in optimizer.param_groups for p in g["params"])
""",
    "by branch": f"""{GUARD}if amp is not None:

    def initialize(*args, **kwargs):
        return amp.initialize(*args, **kwargs)

    def scale_loss(*args, **kwargs):
        return amp.scale_loss(*args, **kwargs)

    def master_params(optimizer):
        return amp.master_params(optimizer)

else:

    def initialize(models, optimizers, **kwargs):
        return models, optimizers
{PLAIN.format(name="scale_loss").replace(chr(10), chr(10) + "    ").rstrip(" ")}
    def master_params(optimizer):
        return (p for g in optimizer.param_groups for p in g["params"])
""",
}
TRAIN = """import json

import torch
{imports}

def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = {amp}initialize(model, optimizer, opt_level="O1")
    for x in torch.randn(3, 8, 4):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        with {amp}scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_({amp}master_params(optimizer), 1.0)
        optimizer.step()
    print(json.dumps(float(loss)))


if __name__ == "__main__":
    main()
"""
NATIVE = """import json

import torch


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x in torch.randn(3, 8, 4):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    print(json.dumps(float(loss)))


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize(
    ("imports", "amp"),
    [("import mixed as amp\n", "amp."), ("from mixed import initialize, master_params, scale_loss\n", "")],
)
def test_a_file_that_hands_apex_on_in_functions(kind: str, imports: str, amp: str) -> None:
    after = check_files({"mixed.py": MIXED[kind], "train.py": TRAIN.format(imports=imports, amp=amp)})
    assert after["train.py"] == NATIVE
    assert not after["mixed.py"].strip()


def test_it_trains_as_it_did_without_apex(tmp_path: Path) -> None:
    files = {"mixed.py": MIXED["guarded"], "train.py": TRAIN.format(imports="import mixed as amp\n", amp="amp.")}
    blocked = {"apex.py": "raise ImportError\n"}
    losses = [
        run_files(tmp_path / name, texts, "train.py")
        for name, texts in (("before", {**files, **blocked}), ("after", {**check_files(files), **blocked}))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6), json.dumps(losses)


def test_in_the_file_itself() -> None:
    train = TRAIN.format(imports="", amp="").partition("import torch\n")
    mixed = MIXED["guarded"].replace("import contextlib\n", "")
    after = check_files({"train.py": f"import contextlib\n{train[0]}{train[1]}{mixed}{train[2]}"})["train.py"]
    assert "apex" not in after
    assert "def initialize" not in after
    assert "_plain" not in after
    assert 'scaler = torch.amp.GradScaler("cuda")' in after


def test_what_else_a_file_has_stays() -> None:
    """A helper that something else calls, and what the other functions need."""
    used = "\n\ndef unscaled(loss):\n    return _plain(loss)\n"
    files = {"mixed.py": MIXED["guarded"] + used, "train.py": TRAIN.format(imports="import mixed as amp\n", amp="amp.")}
    after = check_files(files)
    assert after["train.py"] == NATIVE
    assert "def initialize" not in after["mixed.py"]
    assert "@contextlib.contextmanager\ndef _plain(" in after["mixed.py"]
    assert after["mixed.py"].endswith(used)


def test_one_that_is_still_needed_stays() -> None:
    """A program that is left with Apex calls it as before."""
    left = """from mixed import initialize, scale_loss


def main(options, closure):
    model, optimizer = initialize(options.model, options.optimizer, **options.settings)
    with scale_loss(options.loss(model), optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step(closure)
"""
    files = {"mixed.py": MIXED["handed on"], "left.py": left}
    results = rewrite_files({**files, "train.py": TRAIN.format(imports="import mixed as amp\n", amp="amp.")})
    assert results["train.py"].after == NATIVE
    assert results["left.py"].after is None
    assert any(f.status == "manual" for f in results["left.py"].findings)
    mixed = results["mixed.py"].after or results["mixed.py"].before
    assert "def initialize(*args, **kwargs):\n    return amp.initialize(*args, **kwargs)\n" in mixed
    assert "return amp.scale_loss(loss, optimizer, **kwargs)\n" in mixed
    assert any(f.status == "manual" for f in results["mixed.py"].findings)


@pytest.mark.parametrize(
    "initialize",
    [
        'def initialize(*args, **kwargs):\n    return amp.initialize(*args, opt_level="O2", **kwargs)\n',
        "def initialize(*args, **kwargs):\n    print(len(args))\n    return amp.initialize(*args, **kwargs)\n",
        "def initialize(*args, **kwargs):\n    return amp.initialize(*args)\n",
        "def initialize(optimizer, model, **kwargs):\n    return amp.initialize(model, optimizer, **kwargs)\n",
        "def initialize(*args, **kwargs):\n    if MIXED:\n        return amp.initialize(*args, **kwargs)\n    return args\n",
        "def initialize(*args, **kwargs):\n    return amp.initialize(*args, **kwargs)[0], args[1]\n",
        "if MIXED:\n\n    def initialize(*args, **kwargs):\n        return amp.initialize(*args, **kwargs)\n",
    ],
)
def test_a_function_that_does_something_of_its_own_is_none(initialize: str) -> None:
    """Where it stands is not migrated as if Apex's had been called with what its callers say."""
    mixed = MIXED["handed on"].partition("def scale_loss")
    first = f"import os\n\nfrom apex import amp\n\nMIXED = os.environ.get('MIXED')\n\n\n{initialize}\n\n"
    files = {
        "mixed.py": first + mixed[1] + mixed[2],
        "train.py": TRAIN.format(imports="import mixed as amp\n", amp="amp."),
    }
    results = rewrite_files(files)
    after = results["train.py"].after or results["train.py"].before
    assert "amp.initialize(" in after
    assert 'torch.amp.GradScaler("cuda")' not in after


def test_a_parameter_that_a_call_names_otherwise_than_apex() -> None:
    files = {
        "mixed.py": MIXED["in the body"],
        "train.py": TRAIN.format(imports="import mixed as amp\n", amp="amp.").replace(
            "initialize(model, optimizer,", "initialize(model=model, optimizer=optimizer,"
        ),
    }
    results = rewrite_files(files)
    assert results["train.py"].after is None
    assert any(f.status == "manual" for f in results["mixed.py"].findings)


def test_a_package_hands_out_one_that_stays() -> None:
    """Its users import it from there, whether or not anything in sight does."""
    files = {
        "mixed/__init__.py": "import os\n\nif os.environ:\n    from mixed.losses import scale_loss\n",
        "mixed/losses.py": MIXED["handed on"],
        "step.py": """from mixed.losses import scale_loss


def closure(model, x, optimizers):
    with scale_loss(model(x).sum(), optimizers["default"]) as scaled_loss:
        scaled_loss.backward()
    optimizers["default"].step()
""",
    }
    results = rewrite_files(files)
    assert any(f.status == "manual" for f in results["step.py"].findings)
    assert "def scale_loss" in (results["mixed/losses.py"].after or results["mixed/losses.py"].before)
    assert results["mixed/__init__.py"].after is None


def test_a_package_hands_out_a_class_that_stands_for_apexs() -> None:
    """Something else of Apex's keeps the file as it is."""
    files = {
        "mixed/__init__.py": "from .utils import HAS_AMP, amp\n",
        "mixed/utils.py": """
            try:
                from apex import amp
                HAS_AMP = True
            except ImportError:
                HAS_AMP = False

                class amp:
                    pass
        """,
    }
    assert rewrite_files(files)["mixed/__init__.py"].after is None
