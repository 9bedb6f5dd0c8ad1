"""The scaler passed along: to every copy of a function, through every kind of signature and call. What is emitted is run."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import found
from tests.rules.trained import check_trained

INITIALIZE = '    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
BODY = """
    for x, y in batches:
        opt.zero_grad()
        loss = criterion(net(x), y)
        with amp.scale_loss(loss, opt) as scaled_loss:
            scaled_loss.backward()
        seen.append(float(clip_grad_norm_(amp.master_params(opt), 1.0)))
        opt.step()
"""


def program(signature: str, call: str, more: str = "") -> str:
    """A loop behind a signature, and a call of it where the optimizer is prepared; names that say nothing."""
    return f"""
from functools import partial


def run({signature}):{BODY}
{more}

def main(model, optimizer):
{INITIALIZE}    {call}


main(model, optimizer)
"""


SHAPES = {
    "positional": ("net, opt, batches", "run(model, optimizer, loader)"),
    "unpacked list": ("net, opt, batches", "run(*[model, optimizer], loader)"),
    "unpacked list at the end": ("net, opt, batches, again=1", "run(model, *[optimizer, loader])"),
    "unpacked dict": ("net, opt, batches", 'run(model, **{"opt": optimizer, "batches": loader})'),
    "by name": ("net, opt, batches", "run(batches=loader, net=model, opt=optimizer)"),
    "by name after a comma": ("net, opt, batches", "run(net=model, opt=optimizer, batches=(loader),)"),
    "parentheses": ("net, opt, batches, again=(1)", "run((model), (optimizer), (loader), (2))"),
    "keyword-only": ("net, *, opt, batches", "run(model, opt=optimizer, batches=loader)"),
    "keyword-only alone": ("*, net, opt, batches=loader", "run(opt=optimizer, net=model)"),
    "keyword-only and the rest": ("*, net, opt, batches=(loader), **kw", "run(opt=optimizer, net=model, more=3)"),
    "positional-only": ("net, opt, /, batches=loader", "run(model, optimizer)"),
    "positional-only alone": ("net, opt, batches, /", "run(model, optimizer, loader)"),
    "positional-only, by name after": ("net, opt, /, batches", "run(model, optimizer, batches=loader)"),
    "defaults alone": ("net=model, opt=optimizer, batches=loader", "run()"),
    "defaults, some given": ("net=model, opt=optimizer, batches=loader", "run(model, batches=loader)"),
    "defaults, unpacked": ("net=model, opt=optimizer, batches=loader", "run(*(model, optimizer))"),
    "the rest": ("net, opt, *batches", "run(model, optimizer, *loader)"),
    "the rest, by name": ("net, opt, **kw", "run(model, optimizer, batches=loader)"),
    "partial": ("net, opt, batches", "partial(run, model, batches=loader)(opt=optimizer)"),
    "partial, called": ("net, opt, batches", "bound = partial(run, model)\n    bound(optimizer, loader)"),
    "several lines": (
        "\n    net,  # the model\n    opt,\n    batches=(loader),  # all\n",
        "run(\n        model,\n        opt=(optimizer),  # it\n    )",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_scaler_is_passed_whatever_the_signature_and_the_call(shape: str) -> None:
    signature, call = SHAPES[shape]
    source = program(signature, call)
    if "*batches" in signature:
        source = source.replace("for x, y in batches:", "for x, y in list(batches):")
    if shape == "the rest, by name":
        source = source.replace("in batches:", 'in kw["batches"]:')
    after = check_trained(source)
    assert "scaler.step(opt)" in after


# A loss scale that is a number or dynamic at run time is a parameter of its own, beside that of the scaler.
AT_RUN_TIME = INITIALIZE.replace('"O1")', '"O1", loss_scale="dynamic" if scale is None else scale)')
SHAPES_OF_TWO = {
    **SHAPES,
    "defaults before the rest": ("net, opt=None, batches=None, *more", "run(model, optimizer, loader)"),
    "no optimizer given": ("net, opt=None, batches=loader, **kw", "run(model, opt=optimizer, more=3)"),
}


@pytest.mark.parametrize(
    ("shape", "scale"),
    [*((shape, 64.0) for shape in SHAPES_OF_TWO), ("positional", None), ("no optimizer given", None)],
)
def test_two_parameters_of_one_signature_stand_beside_each_other(shape: str, scale: float | None) -> None:
    signature, call = SHAPES_OF_TWO[shape]
    source = f"scale = getattr(loader, 'scale', {scale})\n{program(signature, call).replace(INITIALIZE, AT_RUN_TIME)}"
    if "*batches" in signature:
        source = source.replace("for x, y in batches:", "for x, y in list(batches):")
    if shape == "the rest, by name":
        source = source.replace("in batches:", 'in kw["batches"]:')
    after = check_trained(source)
    assert "scaler.step(opt)" in after
    assert "scaler.update(loss_scale)" in after


def test_a_signature_and_a_call_without_anything_take_two() -> None:
    source = f"""
scale = getattr(loader, "scale", 64.0)
net, opt, batches = model, optimizer, loader


def run():{BODY}

def main():
    global net, opt
    net, opt = amp.initialize(net, opt, opt_level="O1", loss_scale="dynamic" if scale is None else scale)
    run()


main()
"""
    after = check_trained(source)
    assert "scaler.update(loss_scale)" in after


HANDED_ON = {
    "by name": ("**kw", "run(**kw)", "launch(net=model, opt=optimizer, batches=loader)"),
    "by position": ("*given", "run(*given)", "launch(model, optimizer, loader)"),
    "both": ("*given, **kw", "run(*given, **kw)", "launch(model, optimizer, batches=loader)"),
    "beside others": ("first, **kw", "run(first, **kw)", "launch(model, opt=optimizer, batches=loader)"),
    "beside a default": ("first=model, **kw", "run(first, **kw)", "launch(opt=optimizer, batches=loader)"),
}


@pytest.mark.parametrize("shape", HANDED_ON)
def test_a_function_that_hands_everything_on_hands_the_scaler_on(shape: str) -> None:
    signature, body, call = HANDED_ON[shape]
    after = check_trained(program("net, opt, batches", call, f"\ndef launch({signature}):\n    {body}\n"))
    assert "scaler.step(opt)" in after


COPIES = {
    "if and else": """
if loader:
    def run(net, opt, batches):{body}
else:
    def run(opt, net, batches):{other}
""",
    "try and except": """
try:
    import nothing_of_that_name

    def run(net, opt, batches):{other}
except ImportError:
    def run(net, opt, batches):{body}
""",
    "again": """
def run(net, opt, batches):{other}

def run(net, opt, batches):{body}
""",
    "a plain one": """
if not loader:
    def run(net, opt, batches):
        return None
else:
    def run(net, opt, batches):{body}
""",
}


@pytest.mark.parametrize("shape", COPIES)
def test_every_copy_of_a_function_is_migrated(shape: str) -> None:
    deeper = BODY if shape == "again" else BODY.replace("\n", "\n    ")
    other = deeper.replace("zero_grad()", "zero_grad(set_to_none=True)")
    copies = COPIES[shape].replace("{body}", deeper).replace("{other}", other)
    call = "run(net=model, opt=optimizer, batches=loader)"
    after = check_trained(
        f"{copies}\n\ndef main(model, optimizer):\n{INITIALIZE}    {call}\n\n\nmain(model, optimizer)\n"
    )
    assert "amp.scale_loss" not in after
    assert after.count("scaler.step(opt)") == 1 + ("{other}" in COPIES[shape])


METHODS = """
from abc import ABC, abstractmethod


class Base(ABC):
    @abstractmethod
    def run(self, net, opt, batches):
        ...

    def twice(self, net, opt, batches):
        for _ in range(2):
            self.run(net, opt, batches)


class Plain(Base):
    if loader:
        def run(self, net, opt, batches):{body}
    else:
        def run(self, net, opt, batches):
            raise NotImplementedError


class Other(Plain):
    def run(self, net, opt, batches, *, times=1):
        for _ in range(times):
            {above}


class Silent(Base):
    def run(self, net, opt, batches=()):
        seen.append(7.0)


def main(model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for trainer in (Plain(), Other(), Silent()):
        go(trainer, model, optimizer)
    Other().run(model, optimizer, batches=loader, times=2)


def go(trainer: Base, net, opt):
    Base.twice(trainer, net, opt, loader)


main(model, optimizer)
"""


@pytest.mark.parametrize(
    "above",
    ["super().run(net, opt, batches)", "Plain.run(self, net, opt, batches)", "super().run(*(net, opt, batches))"],
)
def test_methods_that_stand_for_each_other_take_the_scaler_alike(above: str) -> None:
    body = BODY.replace("\n", "\n        ")
    after = check_trained(METHODS.replace("{body}", body).replace("{above}", above))
    assert after.count("scaler.step(opt)") == 1


def test_an_import_that_may_be_replaced_brings_a_copy_too() -> None:
    loop = f"from apex import amp\n\n\ndef run(net, opt, batches):{BODY}"
    train = f"""
import torch
from apex import amp
try:
    from fast import run
except ImportError:
    from slow import run


def main(model, optimizer):
{INITIALIZE}    run(model, optimizer, loader)
"""
    results = rewrite_files({"fast.py": loop, "slow.py": loop.replace("1.0", "2.0"), "train.py": train})
    assert not [f for r in results.values() for f in r.findings if f.status == "manual"]
    for name in ("fast.py", "slow.py"):
        assert "def run(net, opt, scaler, batches):" in (results[name].after or "")


def test_a_public_function_of_a_module_is_said_to_take_more() -> None:
    files = {
        "engine.py": f"from apex import amp\n\n\ndef run(net, opt, batches):{BODY}",
        "train.py": f"from apex import amp\nfrom engine import run\n\n\ndef main(model, optimizer):\n{INITIALIZE}"
        "    run(model, optimizer, loader)\n\n\nif __name__ == '__main__':\n    main(*build())\n",
    }
    (finding,) = found(rewrite_files(files)["engine.py"], "AMP220")
    assert finding.review == "look"
    assert "any other must too" in finding.message
    script = program("net, opt, batches", "run(model, optimizer, loader)").replace(
        "\nmain(model", '\nif __name__ == "__main__":\n    main(model'
    )
    (finding,) = found(rewrite(f"import torch\nfrom apex import amp\n{script}"), "AMP220")
    assert finding.review == "as-is"  # a script: nothing imports it


def test_a_function_that_takes_nothing_by_name_finds_the_scaler_at_module_level() -> None:
    source = program("net, opt, batches, /", "run(*(model, optimizer, loader))")
    result = rewrite(f"import torch\nfrom apex import amp\n{source}")
    (told,) = found(result, "AMP227")
    assert "run takes nothing by name" in told.message
    assert "    global scaler\n    scaler = torch.amp.GradScaler" in (result.after or "")


STUBBED = """
    import torch
    from apex import amp


    class Regularizer:
        def update(self):
            \"\"\"To be overridden.\"\"\"
            raise NotImplementedError

        def name(self):
            return "none"


    class Fisher(Regularizer):
        def __init__(self, model):
            self.model, self.fisher = model, 0.0

        def update(self):
            for p in self.model.parameters():
                self.fisher += (p.grad ** 2).sum().item()


    def make(model, kind):
        return Fisher(model) if kind == "fisher" else None


    def main(batches, kind="fisher"):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, optimizer = amp.initialize(model, optimizer)
        regularizer = make(model, kind)
        for x, y in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            regularizer.update()
            with amp.scale_loss(model(x).pow(2).mean(), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        return regularizer.fisher
"""


def test_what_declares_a_method_takes_what_its_overrides_take() -> None:
    result = rewrite_files({"train.py": STUBBED})["train.py"]
    assert result.after is not None
    assert result.after.count("def update(self, scaler):") == 2
    assert "regularizer.update(scaler=scaler)" in result.after
    assert not [f for f in result.findings if "nothing in sight calls it" in f.message]
