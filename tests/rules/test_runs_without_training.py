"""An evaluation of a run that never comes by `amp.initialize` was in float32, and stays so where the command line tells."""

from __future__ import annotations

import re

import pytest

from amp_migrate.findings import FileResult
from tests.rules.helpers import check_files, check_manual, rewrite, rewrite_files

PROGRAM = """
import argparse

import torch
from apex import amp
from project import build, loader


def train(args, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    evaluate(args, model)


def evaluate(args, model):
    with torch.no_grad():
        return [model(x).argmax(1) for x, _ in loader]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--do_train", action="store_true")
    parser.add_argument("--do_eval", action="store_true")
    args = parser.parse_args()
    model = build()
    if args.do_train:
        train(args, model)
    if args.do_eval:
        evaluate(args, model)


if __name__ == "__main__":
    main()
"""


def switches(result: FileResult) -> list[str]:
    """The switches of the regions, in their order: of the training, of the evaluation."""
    assert result.after is not None, result.findings
    return re.findall(r"torch\.autocast\(\"cuda\", dtype=torch\.float16(?:, enabled=(.*?))?\)[:,]", result.after)


def told(result: FileResult) -> list[int]:
    return [f.line for f in result.findings if f.code == "AMP531"]


def test_an_evaluation_of_a_run_that_does_not_train_stays_in_float32() -> None:
    result = rewrite(PROGRAM)
    assert switches(result) == ["args.fp16", "args.do_train and args.fp16"]
    assert not told(result)


def test_so_it_does_where_mixed_precision_was_no_option() -> None:
    program = PROGRAM.replace("    if args.fp16:\n        model, optimizer", "    model, optimizer").replace(
        """        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
""",
        """        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
""",
    )
    result = rewrite(program)
    assert switches(result) == ["", "args.do_train"]
    assert not told(result)


def test_through_functions_in_between() -> None:
    program = PROGRAM.replace("        train(args, model)\n", "        learn(args, model)\n").replace(
        "def main():", "def learn(args, model):\n    train(args, model)\n\n\ndef main():"
    )
    result = rewrite(program)
    assert switches(result) == ["args.fp16", "args.do_train and args.fp16"]
    assert not told(result)


@pytest.mark.parametrize(
    "program",
    [
        PROGRAM.replace("    if args.do_train:\n        train(", "    train("),  # every run trains
        PROGRAM.replace("    if args.do_eval:\n        evaluate(args, model)\n", ""),  # only the training evaluates
    ],
)
def test_where_every_evaluation_comes_after_the_set_up_nothing_is_asked(program: str) -> None:
    result = rewrite(program)
    assert switches(result) == ["args.fp16", "args.fp16"]
    assert not told(result)


@pytest.mark.parametrize("asked", ["build.path.exists()", "len(loader) > 3", "model.training"])
def test_what_is_no_option_is_not_asked_again(asked: str) -> None:
    result = rewrite(PROGRAM.replace("if args.do_train:", f"if {asked}:"))
    assert switches(result) == ["args.fp16", "args.fp16"]
    assert len(told(result)) == 1


@pytest.mark.parametrize(
    ("call", "function"),
    [
        ("learn(args=args, model=model)", "def learn(**kwargs):\n    return train(**kwargs)\n"),
        ("learn(args, model)", "def learn(*args, **kwargs):\n    return train(*args, **kwargs)\n"),
    ],
)
def test_through_a_function_that_hands_on_what_it_is_given(call: str, function: str) -> None:
    """That the model is the one that is evaluated was not seen: its region was left out."""
    program = PROGRAM.replace("    evaluate(args, model)\n\n\ndef evaluate", "\n\ndef evaluate", 1)
    program = program.replace("        train(args, model)\n", f"        {call}\n")
    result = rewrite(program.replace("def main():", f"{function}\n\ndef main():"))
    assert switches(result) == ["args.fp16", "args.do_train and args.fp16"]
    assert not told(result)


def test_a_function_that_another_program_calls_is_handed_the_switch() -> None:
    """The other program's settings need not have the options of this one, and it never had Apex set up."""
    files = {
        "train.py": PROGRAM,
        "serve.py": "from train import evaluate\nfrom options import args, model\nevaluate(args, model)\n",
    }
    results = rewrite_files(files)
    result = results["train.py"]
    assert switches(result) == ["args.fp16", "use_amp"]
    assert result.after is not None
    assert re.findall(r"use_amp=(.*)[,)]", result.after) == ["args.fp16", "False", "args.do_train and args.fp16"]
    assert not told(result)
    (left_out,) = (f.message for f in result.findings if f.code == "AMP220")
    assert "left out, as in serve.py:3" in left_out
    assert results["serve.py"].after is None


@pytest.mark.parametrize(("guard", "given"), [("", "True"), ("args.fp16", "args.fp16")])
def test_a_script_that_sets_up_in_its_guarded_lines_hands_the_switch_on(guard: str, given: str) -> None:
    """Whoever imports the file lacks what these lines bind: a name of theirs is no switch there."""
    init = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    scaled = """
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()"""
    train = f"""
    import argparse
    import torch
    from apex import amp
    from project import build, loader

    def evaluate(model):
        with torch.no_grad():
            return [model(x).argmax(1) for x, _ in loader]

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        args = parser.parse_args()
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {f"if {guard}: " if guard else ""}{init}
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y){scaled}
            optimizer.step()
            optimizer.zero_grad()
        evaluate(model)
    """
    results = rewrite_files(
        {"train.py": train, "serve.py": "from train import evaluate\nfrom project import net\nevaluate(net)\n"}
    )
    result = results["train.py"]
    assert switches(result)[0] == "use_amp"
    assert "def evaluate(model, use_amp=False):" in (result.after or "")
    assert f"evaluate(model, use_amp={given})" in (result.after or "")
    assert not told(result)
    assert results["serve.py"].after is None


def test_the_option_may_be_declared_in_a_file_that_is_imported() -> None:
    options = re.search(r"    parser = .*?parse_args\(\)\n", PROGRAM, re.DOTALL)
    assert options is not None
    files = {
        "train.py": PROGRAM.replace(options[0], "    args = parsed()\n").replace(
            "from project", "from options import parsed\nfrom project"
        ),
        "options.py": "import argparse\n\n\ndef parsed():\n" + options[0].replace("args = ", "return "),
    }
    result = rewrite_files(files)["train.py"]
    assert switches(result) == ["args.fp16", "args.do_train and args.fp16"]
    assert not told(result)


SHARED = {
    "evaluation.py": """
    import torch

    def evaluate(model, loader):
        with torch.no_grad():
            return [model(x).argmax(1) for x, _ in loader]
    """,
    "train.py": """
    import torch
    from apex import amp
    from evaluation import evaluate
    from project import build, loader

    def learn(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        evaluate(model, loader)

    if __name__ == "__main__":
        learn(build())
    """,
    "plain.py": """
    from evaluation import evaluate
    from project import build, loader

    def main():
        evaluate(build(), loader)

    if __name__ == "__main__":
        main()
    """,
}


def test_a_function_that_a_program_without_apex_calls_is_handed_the_switch() -> None:
    results = rewrite_files(SHARED)
    assert "def evaluate(model, loader, use_amp=False):" in (results["evaluation.py"].after or "")
    assert switches(results["evaluation.py"]) == ["use_amp"]
    assert "evaluate(model, loader, use_amp=True)" in (results["train.py"].after or "")
    assert "plain.py" not in results or results["plain.py"].after is None
    assert not [f for r in results.values() for f in r.findings if f.code == "AMP531"]


def test_a_function_that_only_programs_of_the_set_up_call_is_always_mixed() -> None:
    results = rewrite_files({name: text for name, text in SHARED.items() if name != "plain.py"})
    assert switches(results["evaluation.py"]) == [""]


RUNNING = """
from project import loader
from train import Net

model = Net().eval()
for x, _ in loader:
    print(model(x).argmax(1))
"""


def test_a_script_that_never_calls_what_initializes_stays_as_it_is() -> None:
    train = SHARED["train.py"].replace(
        "    def learn(model):", "    class Net(torch.nn.Linear):\n        pass\n\n    def learn(model):"
    )
    train = train.replace("learn(build())", "learn(Net(4, 2))")
    files = {"evaluation.py": SHARED["evaluation.py"], "train.py": train, "try.py": RUNNING}
    results = rewrite_files(files)
    assert results["train.py"].after is not None
    assert "try.py" not in results or results["try.py"].after is None


@pytest.mark.parametrize("start", ["print(evaluate(build()))", "found = evaluate(build())", "evaluate(build())"])
def test_a_script_of_plain_statements_is_one_that_never_initializes(start: str) -> None:
    program = """
    import torch
    from apex import amp
    from project import build, criterion, loader


    def evaluate(model):
        with torch.no_grad():
            return [model(x).argmax(1) for x, _ in loader]


    def main():
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"found {evaluate(model)}")


    if __name__ == "__main__":
        main()
    """
    script = f"from train import build, evaluate\n\n{start}\n"
    texts = check_files({"train.py": program, "look.py": script})
    assert texts["look.py"] == script
    assert "def evaluate(model, use_amp=False):" in texts["train.py"]
    assert 'print(f"found {evaluate(model, use_amp=True)}")' in texts["train.py"]


@pytest.mark.parametrize(
    ("ways", "asked"),
    [
        ("if args.warm:\n        train(args, model)\n    elif args.do_train:\n", "(args.warm or args.do_train) and args.fp16"),
        ("if args.warm:\n        train(args, model)\n    if args.do_train:\n", "(args.warm or args.do_train) and args.fp16"),
        ("if args.warm:\n        train(args, model)\n    else:\n", "args.fp16"),
        ("if args.do_train and args.warm:\n        train(args, model)\n    if args.do_train:\n", "args.do_train and args.fp16"),
    ],
)  # fmt: skip
def test_of_several_ways_to_the_set_up_each_counts(ways: str, asked: str) -> None:
    program = PROGRAM.replace("    if args.do_train:\n", f"    {ways}")
    program = program.replace(
        "    args = parser", '    parser.add_argument("--warm", action="store_true")\n    args = parser'
    )
    result = rewrite(program)
    assert switches(result) == ["args.fp16", asked]
    assert not told(result)


def test_a_function_that_is_only_handed_on_runs_where_the_one_around_it_does() -> None:
    """It is a loader's `collate_fn`: no call of it is in sight, and it runs the model."""
    inner = """def evaluate(args, model):
    def collate(batch):
        return model(batch[0]), batch[1]

    with torch.no_grad():
        return [out.argmax(1) for out, _ in torch.utils.data.DataLoader(loader, collate_fn=collate)]
"""
    start, end = PROGRAM.index("def evaluate"), PROGRAM.index("def main")
    result = rewrite(f"{PROGRAM[:start]}{inner}\n\n{PROGRAM[end:]}")
    assert switches(result) == ["args.fp16", "args.do_train and args.fp16"]
    assert not told(result)


UNUSED = """
import torch
from apex import amp


def check(total, level):
    model = torch.nn.Linear(1, 1)
    model.weight.data.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level=level)
    for y in torch.rand(10):
        total.update(y)
"""


def test_what_is_prepared_and_never_run_needs_no_region() -> None:
    result = rewrite(UNUSED)
    assert result.after is not None
    assert "amp" not in result.after
    told = [f for f in result.findings if f.code == "AMP502"]
    assert [f.review for f in told] == ["look"]
    assert "nothing reads what it prepares" in told[0].message
    assert not [f for f in result.findings if f.code == "AMP112"]  # no autocast stands for O2 here


@pytest.mark.parametrize(
    "program",
    [
        UNUSED + "    return model\n",
        UNUSED + "    print(lambda: model)\n",
        UNUSED.replace("    optimizer =", "    total.watch(model)\n    optimizer ="),
        UNUSED.replace("(total, level)", "(total, level, model)").replace("    model = torch.nn.Linear(1, 1)\n", ""),
    ],
)
def test_what_may_be_run_out_of_sight_is_refused(program: str) -> None:
    check_manual(program, "AMP502")


def test_so_it_does_where_each_model_is_set_up_by_itself() -> None:
    program = (
        PROGRAM.replace("def train(args, model):", "def train(args, model, head):")
        .replace("train(args, model)\n    if", "train(args, model, build())\n    if")
        .replace(
            """opt_level="O1")
""",
            """opt_level="O1")
        head, stepper = amp.initialize(head, torch.optim.SGD(head.parameters(), lr=0.1), opt_level="O1")
""",
        )
    )
    assert switches(rewrite(program))[-1] == "args.do_train and args.fp16"


ENGINE, MAIN = PROGRAM[: PROGRAM.index("def main")], PROGRAM[PROGRAM.index("def main") :]
TASK = """
from engine import evaluate, train


def run_task(args, model):
    if args.do_train:
        train(args, model)
    if args.do_eval:
        evaluate(args, model)
"""
SEVERAL = {
    "engine.py": ENGINE,
    "task.py": TASK,
    "main.py": "import argparse\nfrom project import build\nfrom task import run_task\n\n\n"
    + re.sub(r"    if args\.do_train:.*?(?=\n\n)", "    run_task(args, model)", MAIN, flags=re.DOTALL),
}


def test_ways_through_several_files() -> None:
    result = rewrite_files(SEVERAL)["engine.py"]
    assert switches(result) == ["args.fp16", "args.do_train and args.fp16"]
    assert not told(result)


@pytest.mark.parametrize("declared", [True, False])
def test_where_another_program_trains_in_any_case_nothing_is_asked(declared: bool) -> None:
    """What it evaluates was mixed, whatever its option says; what differs in the other one is told."""
    other = SEVERAL["main.py"].replace("from task import run_task", "from engine import evaluate, train")
    other = other.replace("run_task(args, model)", "train(args, model)")
    if not declared:
        other = other.replace('    parser.add_argument("--do_train", action="store_true")\n', "")
    result = rewrite_files(SEVERAL | {"always.py": other})["engine.py"]
    assert "args.do_train" not in "".join(switches(result))
    assert len(told(result)) == 1


def test_a_program_without_the_option_hands_no_switch() -> None:
    """It evaluates alone, and never comes by the set-up."""
    other = SEVERAL["main.py"].replace('    parser.add_argument("--do_train", action="store_true")\n', "")
    other = other.replace("from task import run_task", "from engine import evaluate")
    other = other.replace("run_task(args, model)", "evaluate(args, model)")
    results = rewrite_files(SEVERAL | {"alone.py": other})
    assert switches(results["engine.py"]) == ["args.fp16", "use_amp"]
    assert "evaluate(args, model, use_amp=args.do_train and args.fp16)" in (results["task.py"].after or "")
    assert results["alone.py"].after is None


def test_what_only_the_set_up_read_is_read_behind_what_leads_to_it() -> None:
    """Nothing declares the level: a run that only evaluates never read it, and must not fail for it."""
    source = PROGRAM.replace('opt_level="O1"', "opt_level=args.fp16_opt_level")
    result = rewrite(source)
    assert switches(result)[-1] == 'args.do_train and args.fp16 and args.fp16_opt_level != "O0"'


SET_UP_AGAIN = """        model = torch.load("model.pt")
        if args.fp16:
            model = amp.initialize(model, opt_level="O1")
        evaluate(args, model)
"""


def set_up_again(block: str = SET_UP_AGAIN) -> str:
    return PROGRAM.replace("    if args.do_eval:\n        evaluate(args, model)\n", f"    if args.do_eval:\n{block}")


def test_a_run_that_only_predicts_may_set_apex_up_for_itself() -> None:
    result = rewrite(set_up_again())
    assert switches(result) == ["args.fp16", "args.fp16"]
    assert not told(result)
    assert not any(f.code == "AMP517" for f in result.findings)


def test_so_it_may_by_way_of_a_function_and_at_a_level_that_is_asked_for() -> None:
    program = set_up_again(SET_UP_AGAIN.replace("evaluate(", "predict(")).replace('"O1"', "args.level")
    option = 'parser.add_argument("--level", default="O1")'
    program = program.replace(
        "def main():", "def predict(args, model):\n    return evaluate(args, model)\n\n\ndef main():"
    )
    program = program.replace("    args = parser", f"    {option}\n    args = parser")
    result = rewrite(program)
    assert switches(result)[1] == 'args.fp16 and args.level != "O0"'
    assert not told(result)
    assert not any(f.code == "AMP517" for f in result.findings)


@pytest.mark.parametrize(
    "block",
    [
        SET_UP_AGAIN + "    if args.again:\n        evaluate(args, torch.load('other.pt'))\n",
        SET_UP_AGAIN.replace("if args.fp16:", "if args.fp16 and args.again:"),
        SET_UP_AGAIN.replace("if args.fp16:", "for _ in range(args.again):"),
    ],
)
def test_it_is_not_taken_to_where_some_run_comes_by_none(block: str) -> None:
    program = set_up_again(block).replace(
        '("--do_eval", action="store_true")',
        '("--do_eval", action="store_true")\n    parser.add_argument("--again", type=int)',
    )
    result = rewrite(program)
    assert switches(result)[1] == "args.do_train and args.fp16"
    assert told(result)


UNSEEN = (
    re.sub(r"    parser = .*args = parser.parse_args\(\)\n", "    args = options()\n", PROGRAM, flags=re.DOTALL)
    .replace("import argparse\n", "")
    .replace("from project import build, loader", "from project import build, loader, options")
)


def test_so_it_does_where_the_options_are_declared_out_of_sight() -> None:
    result = rewrite(UNSEEN)
    assert switches(result) == ["bool(args.fp16)", "bool(args.do_train and args.fp16)"]
    assert not told(result)


@pytest.mark.parametrize(
    "line", ["args.do_train = True", 'setattr(args, "do_train", 1)', "vars(args).update(do_train=1)"]
)
def test_an_option_out_of_sight_that_is_given_another_value_tells_nothing(line: str) -> None:
    result = rewrite(UNSEEN.replace("    if args.do_eval", f"    {line}\n    if args.do_eval"))
    assert "args.do_train and" not in (result.after or "")


def test_nor_does_one_that_another_program_may_not_have() -> None:
    """Its own options come from elsewhere."""
    other = "from train import build, evaluate, options\n\n\nevaluate(options(), build())\n"
    result = rewrite_files({"train.py": UNSEEN, "other.py": other})["train.py"]
    assert switches(result) == ["bool(args.fp16)", "use_amp"]
