"""How the scaler reaches code in other functions, methods and objects."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, check_rewrite, rewrite, rewrite_files
from tests.rules.programs import check_refused, found

HEAD = "import torch\nfrom apex import amp\n\nfrom project import build, criterion, loader\n\n\n"
NATIVE_HEAD = "import torch\n\nfrom project import build, criterion, loader\n\n\n"

STEP = """\
def train_step({parameters}):
    loss = criterion(model(x), y)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()


def main():
    model, optimizer = build()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        {call}
"""
NATIVE_STEP = """\
def train_step({parameters}):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def main():
    model, optimizer = build()
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        {call}
"""


@pytest.mark.parametrize(
    ("parameters", "call", "native_parameters", "native_call"),
    [
        (
            "model, optimizer, x, y",
            "train_step(model, optimizer, x, y)",
            "model, optimizer, scaler, x, y",
            "train_step(model, optimizer, scaler, x, y)",
        ),
        (
            "x, y, model, optimizer",
            "train_step(x, y, model, optimizer)",
            "x, y, model, optimizer, scaler",
            "train_step(x, y, model, optimizer, scaler)",
        ),
        (
            "model, optimizer, x, y",
            "train_step(model=model, optimizer=optimizer, x=x, y=y)",
            "model, optimizer, scaler, x, y",
            "train_step(model=model, optimizer=optimizer, x=x, y=y, scaler=scaler)",
        ),
        (
            "model, optimizer, x, y",
            "train_step(model, optimizer, **dict(x=x, y=y))",
            "model, optimizer, scaler, x, y",
            "train_step(model, optimizer, scaler, **dict(x=x, y=y))",
        ),
        (
            "x, y, *, model, optimizer",
            "train_step(x, y, model=model, optimizer=optimizer)",
            "x, y, scaler, *, model, optimizer",
            "train_step(x, y, scaler, model=model, optimizer=optimizer)",
        ),
        (
            "model, optimizer, x, y, verbose=False",
            "train_step(model, optimizer, x, y, verbose=True)",
            "model, optimizer, scaler, x, y, verbose=False",
            "train_step(model, optimizer, scaler, x, y, verbose=True)",
        ),
    ],
)
def test_the_scaler_is_a_parameter_next_to_the_optimizer_at_every_call(
    parameters: str, call: str, native_parameters: str, native_call: str
) -> None:
    result = check_rewrite(
        HEAD + STEP.format(parameters=parameters, call=call),
        NATIVE_HEAD + NATIVE_STEP.format(parameters=native_parameters, call=native_call),
    )
    assert found(result, "AMP220")


def test_it_is_handed_through_functions_on_the_way() -> None:
    source = HEAD + (
        STEP.replace(
            "def main():", "def epoch(model, optimizer):\n    for x, y in loader:\n        {call}\n\n\ndef main():"
        )
        .replace("    for x, y in loader:\n        {call}\n", "    epoch(model, optimizer)\n", 2)
        .replace(
            "def epoch(model, optimizer):\n    epoch(model, optimizer)\n",
            "def epoch(model, optimizer):\n    for x, y in loader:\n        train_step(model, optimizer, x, y)\n",
        )
        .format(parameters="model, optimizer, x, y")
    )
    after = rewrite(source).after
    assert after is not None
    assert "def epoch(model, optimizer, scaler):" in after
    assert "        train_step(model, optimizer, scaler, x, y)\n" in after
    assert "    epoch(model, optimizer, scaler)\n" in after


def test_comments_and_trailing_commas_in_calls_and_definitions_survive() -> None:
    source = HEAD + STEP.format(
        parameters="\n    model,  # the network\n    optimizer,  # its optimizer\n    x,\n    y,\n",
        call="train_step(\n            model,\n            optimizer,  # stepped\n            x, y,\n        )",
    )
    after = rewrite(source).after
    assert after is not None
    compile(after, "train.py", "exec")
    for comment in ("# the network", "# its optimizer", "# stepped"):
        assert comment in after
    assert after.count("scaler") >= 6


def test_a_class_keeps_it_beside_its_optimizer() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion


        class Trainer:
            def __init__(self, args):
                self.model, self.optimizer = build()
                if args.fp16:
                    self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
                self.args = args

            def backward(self, loss):
                if self.args.fp16:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()

            def step(self, x, y):
                loss = criterion(self.model(x), y)
                self.backward(loss)
                self.optimizer.step()
        """
    expected = """
        import torch

        from project import build, criterion


        class Trainer:
            def __init__(self, args):
                self.model, self.optimizer = build()
                self.scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))
                self.args = args

            def backward(self, loss):
                self.scaler.scale(loss).backward()

            def step(self, x, y):
                with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()):
                    loss = criterion(self.model(x), y)
                self.backward(loss)
                self.scaler.step(self.optimizer)
                self.scaler.update()
        """
    check_rewrite(source, expected)


def test_the_object_that_carried_amp_carries_the_scaler() -> None:
    source = """
        import torch

        from project import build, criterion, loader


        def main(args):
            from apex import amp

            args.amp = amp
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            train(args, model, optimizer)


        def train(args, model, optimizer):
            for x, y in loader:
                loss = criterion(model(x), y)
                with args.amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert '    args.scaler = torch.amp.GradScaler("cuda")\n' in after
    assert "args.scaler.scale(loss).backward()" in after
    assert "args.amp" not in after


def test_each_function_that_sets_up_keeps_a_scaler_where_it_kept_amp() -> None:
    setup = """
def {name}(args, model, optimizer):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    args.amp = amp
    return model, optimizer


"""
    source = f"""import torch
from apex import amp

from project import build, criterion, loader


{setup.format(name="fresh").lstrip()}{setup.format(name="resumed").lstrip()}def train(args):
    model, optimizer = build()
    if args.resume:
        model, optimizer = resumed(args, model, optimizer)
    else:
        model, optimizer = fresh(args, model, optimizer)
    for x, y in loader:
        loss = criterion(model(x), y)
        with args.amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
    after = rewrite(source).after
    assert after is not None
    for function in after.split("def ")[1:3]:
        assert 'args.scaler = torch.amp.GradScaler("cuda")' in function
    assert "args.scaler.step(optimizer)" in after


@pytest.mark.parametrize("default", ["", "=None"])
def test_a_parameter_that_handed_amp_over_hands_the_scaler_over(default: str) -> None:
    source = f"""
        import torch
        from apex import amp

        from project import build, criterion, loader


        def train(model, optimizer, amp{default}):
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()


        def main():
            model, optimizer = build()
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            train(model, optimizer, amp=amp)
        """
    after = rewrite(source).after
    assert after is not None
    assert f"def train(model, optimizer, scaler{default}):" in after
    assert "    train(model, optimizer, scaler=scaler)\n" in after


def test_a_function_that_prepares_and_returns_leaves_the_scaler_to_its_caller() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader


        def prepare(model, optimizer, fp16):
            if fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            return model, optimizer


        def main(args):
            model, optimizer = build()
            model, optimizer = prepare(model, optimizer, args.fp16)
            for x, y in loader:
                loss = criterion(model(x), y)
                if args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert (
        "    model, optimizer = prepare(model, optimizer, args.fp16)\n"
        '    scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))\n'
    ) in after


def test_a_scripts_functions_see_the_module_level_scaler() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader

        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")


        def train():
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()


        train()
        """
    after = rewrite(source).after
    assert after is not None
    assert "def train():\n" in after
    assert "\ntrain()\n" in after
    assert "        scaler.scale(loss).backward()\n" in after


# -- what cannot be reached ------------------------------------------------------------------------------------------


def at_module_level(source: str) -> str:
    """The program, in which a function that nothing can hand the scaler to finds it at module level."""
    result = rewrite(source)
    (told,) = found(result, "AMP227")
    assert told.review == "look"
    assert result.after is not None
    assert '\nscaler = torch.amp.GradScaler("cuda", enabled=False)' in result.after
    assert "    global scaler\n" in result.after
    assert "scaler.step(optimizer)" in result.after
    return told.message


def test_a_function_passed_around_as_a_value_finds_it_at_module_level() -> None:
    source = HEAD + STEP.format(parameters="model, optimizer, x, y", call="run(train_step, model, optimizer, x, y)")
    assert "passed around as a value" in at_module_level(source)


def test_a_function_nothing_in_sight_calls_asks_for_the_scaler_and_says_so() -> None:
    source = HEAD + STEP.format(parameters="model, optimizer, x, y", call="print(x, y)")
    target = NATIVE_HEAD + NATIVE_STEP.format(parameters="model, optimizer, scaler, x, y", call="print(x, y)")
    (note,) = found(check_rewrite(source, target), "AMP220")
    assert note.review == "review"
    assert "nothing in sight calls it" in note.message


@pytest.mark.parametrize(
    ("head", "parameters"),
    [
        ("class Hook(Base):\n    def after_iter(self, {}):\n", "optimizer, model, x, y"),
        ("@register\ndef after_iter({}):\n", "optimizer, model, x, y"),
    ],
)
def test_a_function_whose_signature_is_not_its_own_finds_it_at_module_level(head: str, parameters: str) -> None:
    body = STEP.partition("\n")[2].partition("\n\n\n")
    source = HEAD + head.format(parameters)
    source += "".join("    " * head.startswith("class") + line + "\n" for line in body[0].split("\n"))
    source += "\n\n" + body[2].format(call="print(x, y)")
    assert "after_iter needs the scaler" in at_module_level(source)


def test_everything_of_a_unit_that_is_not_migrated_is_reported() -> None:
    # What is loaded anew loses what it keeps at module level.
    source = HEAD + "@register\n" + STEP.format(parameters="model, optimizer, x, y", call="print(x, y)")
    source = source.replace(
        "import torch\n", "import importlib\nimport torch\nimport project\n\nimportlib.reload(project)\n", 1
    )
    result = check_refused(source, "AMP213")
    assert {f.construct for f in result.findings} == {"GradScaler", "amp.initialize", "amp.scale_loss"}
    assert {f.status for f in result.findings} == {"manual"}


def test_a_function_without_parameters_is_given_its_first() -> None:
    source = """
        import torch
        from apex import amp

        from project import build, criterion, loader, state


        def train():
            for x, y in loader:
                loss = criterion(state.model(x), y)
                with amp.scale_loss(loss, state.optimizer) as scaled_loss:
                    scaled_loss.backward()
                state.optimizer.step()


        def main():
            state.model, state.optimizer = build()
            state.model, state.optimizer = amp.initialize(state.model, state.optimizer, opt_level="O1")
            train()
        """
    after = rewrite(source).after
    assert after is not None
    assert "def train(scaler):\n" in after
    assert "    train(scaler=scaler)\n" in after


def test_an_import_inside_the_branch_does_not_keep_the_pair_apart() -> None:
    source = """
        import torch

        from project import args, build, criterion, loader

        model, optimizer = build()
        if args.fp16:
            from apex import amp

            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = criterion(model(x), y)
            if args.fp16:
                from apex import amp

                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        """
    after = rewrite(source).after
    assert after is not None
    assert "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n" in after
    assert "if args.fp16" not in after


def test_a_function_that_only_asks_whether_it_is_on_demands_no_scaler() -> None:
    source = HEAD + STEP.format(parameters="model, optimizer, x, y", call="print(x, y)")
    source += "\n\ndef validate(model, x):\n    return model(x)\n"
    after = rewrite(source).after
    assert after is not None
    assert "def train_step(model, optimizer, scaler, x, y):" in after
    assert "def validate(model, x):" in after


PER_LINE = """
import torch
from apex import amp

def train(
{0}model,
{0}optimizer,
{0}x,
{0}steps=3,
):
{0}loss = model(x).sum()
{0}with amp.scale_loss(loss, optimizer) as scaled_loss:
{0}{0}scaled_loss.backward()
{0}optimizer.step()

def main(model, x):
{0}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{0}model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
{0}train(
{0}{0}model,
{0}{0}optimizer,
{0}{0}x,
{0})
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("step", ["    ", "\t"])
def test_where_each_argument_has_a_line_the_scaler_gets_one(newline: str, step: str) -> None:
    after = rewrite(PER_LINE.format(step).replace("\n", newline)).after
    assert after is not None
    assert f"{newline}{step}optimizer,{newline}{step}scaler,{newline}{step}x,{newline}" in after
    assert f"{newline}{step * 2}optimizer,{newline}{step * 2}scaler,{newline}{step * 2}x,{newline}" in after
    assert "\n" not in after.replace(newline, "")


def test_added_parameters_are_annotated_where_all_others_are() -> None:
    files = {
        "train.py": """
            import torch
            from apex import amp
            from project import build, loader


            def fit(model: torch.nn.Module, loader: list, optimizer: torch.optim.Optimizer) -> None:
                for x in loader:
                    loss = model(x).sum()
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()


            def fit_some(model: torch.nn.Module, loader, optimizer) -> None:
                fit(model, loader, optimizer)


            def main(args):
                model = build()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=args.half)
                fit_some(model, loader, optimizer)
            """,
        "infer.py": """
            from apex import amp
            from evaluation import validate
            from project import build, loader


            def main(args):
                model = amp.initialize(build(), opt_level="O1", enabled=args.half)
                validate(model, loader)
            """,
        "evaluation.py": """
            import torch


            def validate(model: torch.nn.Module, loader: list) -> list:
                with torch.no_grad():
                    return [model(x) for x in loader]
            """,
    }
    texts = check_files(files)
    assert "optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:" in texts["train.py"]
    assert "def fit_some(model: torch.nn.Module, loader, optimizer, scaler) -> None:" in texts["train.py"]
    assert (
        "def validate(model: torch.nn.Module, loader: list, use_amp: bool = False) -> list:" in texts["evaluation.py"]
    )


RESUMED = """\
import torch
from apex import amp

from project import build, criterion, loader, options


def load(model=None, optimizer=None, path="last.pt"):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    if optimizer is not None:
        optimizer.load_state_dict(state["optimizer"])
    if state.get("amp", None) is not None:
        amp.load_state_dict(state["amp"])


def main():
    model, optimizer = build()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if options.evaluate:
        load(model, None, path=options.path)
    else:
        load(model, optimizer, options.path)
    for x, y in loader:
        with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""


def test_what_runs_without_an_optimizer_is_handed_the_scaler_that_stands_above() -> None:
    """It is read there, too; where every parameter has a default it comes by name, so that no position moves."""
    after = rewrite(RESUMED).after
    assert after is not None
    assert 'def load(model=None, optimizer=None, path="last.pt", *, scaler):' in after
    assert "load(model, None, path=options.path, scaler=scaler)" in after
    assert "load(model, optimizer, options.path, scaler=scaler)" in after
    assert 'scaler.load_state_dict(state["scaler"])' in after


DEFINED_TWICE = """
    import torch
    from apex import amp


    def restore(model, path):
        model.load_state_dict(torch.load(path))


    def restore(args, model, optimizer, path, strict=True):
        state = torch.load(path)
        model.load_state_dict(state["model"], strict=strict)
        optimizer.load_state_dict(state["optimizer"])
        amp.load_state_dict(state["amp"])
    """
TRAINS = """
    import torch
    from apex import amp
    from parts import restore
    from project import args, build, loader

    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    restore(args, model, optimizer, args.path)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """
ANOTHER = """
    import torch.multiprocessing as mp
    from parts import restore
    from project import args, build


    def worker(gpu):
        restore(build(), args.path{more})


    mp.spawn(worker)
    """


def test_a_call_that_does_not_fit_a_function_is_none_of_it() -> None:
    """Of a name defined twice each call is of the definition that takes its arguments; a program without Apex that calls
    the other one hands no scaler on."""
    texts = check_files({"parts.py": DEFINED_TWICE, "train.py": TRAINS, "quantize.py": ANOTHER.format(more="")})
    assert "def restore(args, model, optimizer, scaler, path, strict=True):" in texts["parts.py"]
    assert "def restore(model, path):" in texts["parts.py"]
    assert "restore(args, model, optimizer, scaler, args.path)" in texts["train.py"]
    assert "restore(build(), args.path)" in texts["quantize.py"]


def test_a_call_that_fits_hands_the_scaler_on() -> None:
    files = {"parts.py": DEFINED_TWICE, "train.py": TRAINS, "quantize.py": ANOTHER.format(more=", build(), args.path")}
    found = {f.code for r in rewrite_files(files).values() for f in r.findings if f.status == "manual"}
    assert "AMP213" in found
