"""A scaler that scripts set at the level of a module is, in each process, what that one's script has set (AMP531, AMP532)."""

from __future__ import annotations

import pytest

from tests.audit.helpers import doubts_of

RUNNER = """
import torch
from apex import amp


def fit(model, optimizer, batches, mixed):
    for x in batches:
        loss = model(x).mean()
        if mixed:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
        else:
            loss.backward()
        optimizer.step()


def predict(model, x):
    with torch.no_grad():
        return model(x)
"""
RUNNER_AFTER = """
import torch

scaler = torch.amp.GradScaler("cuda", enabled=False)


def fit(model, optimizer, batches, mixed):
    for x in batches:
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
            loss = model(x).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def predict(model, x):
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
        return model(x)
"""
SCRIPT = """
import argparse
import torch
from apex import amp
from lib import runner


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--amp", default="")
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.amp:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.amp)
    RUN


if __name__ == "__main__":
    main()
"""
INIT = "    if args.amp:\n        model, optimizer = amp.initialize(model, optimizer, opt_level=args.amp)\n"
SET = '    runner.scaler = torch.amp.GradScaler("cuda", enabled=bool(args.amp and args.amp != "O0"))\n'
FIT, PREDICT = (
    "runner.fit(model, optimizer, [torch.randn(3, 4)], args.amp)",
    "print(runner.predict(model, torch.randn(3, 4)))",
)
# A notebook as a script: it sets Apex up in any case.
BOOK = """
import torch
from apex import amp
from lib import runner

model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
runner.fit(model, optimizer, [torch.randn(3, 4)], True)
print(runner.predict(model, torch.randn(3, 4)))
"""


def script(run: str, after: str | None = None) -> str:
    text = SCRIPT.replace("RUN", run)
    return text if after is None else text.replace(INIT, after).replace("from apex import amp\n", "")


def book(always: bool = True) -> str:
    text = BOOK.replace('model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n', "SET\n")
    text = text.replace("SET", 'runner.scaler = torch.amp.GradScaler("cuda")' if always else "pass")
    return text.replace("from apex import amp\n", "")


BEFORE = {
    "lib/__init__.py": "",
    "lib/runner.py": RUNNER,
    "book.py": BOOK,
    "train.py": script(FIT),
    "evaluate.py": script(PREDICT),
}
AFTER = {
    "lib/__init__.py": "",
    "lib/runner.py": RUNNER_AFTER,
    "book.py": book(),
    "train.py": script(FIT, SET),
    "evaluate.py": script(PREDICT, SET),
}


def told(after: dict[str, str], before: dict[str, str] = BEFORE) -> list[tuple[str, str, str]]:
    return [(d.code, d.path, d.message) for d in doubts_of(before, after) if d.code in ("AMP531", "AMP532")]


def test_where_every_script_sets_it_there_is_nothing_to_tell() -> None:
    assert told(AFTER) == []


def test_an_evaluation_that_does_not_set_it_runs_in_float32_whatever_others_set() -> None:
    ((code, path, message),) = told({**AFTER, "evaluate.py": script(PREDICT, "")})
    assert (code, path) == ("AMP531", "lib/runner.py")
    assert "called from evaluate.py" in message
    assert "off there now (scaler.is_enabled())" in message


def test_a_book_that_does_not_set_it_is_told_of_as_well() -> None:
    found = told({**AFTER, "book.py": book(always=False)})
    assert found
    assert all("book.py" in message and "off there now" in message for _, _, message in found)


def test_what_an_imported_file_sets_counts() -> None:
    """`import prepare` runs it in the same process."""
    prepare = {"prepare.py": "import torch\nfrom lib import runner\n\nrunner.scaler = torch.amp.GradScaler('cuda')\n"}
    evaluate = script(PREDICT, "").replace("from lib import runner", "import prepare\nfrom lib import runner")
    found = told({**AFTER, **prepare, "evaluate.py": evaluate}, {**BEFORE, "prepare.py": "import torch\n"})
    assert [("gained" if "now where not amp" in m else m) for _, _, m in found] == ["gained"]


@pytest.mark.parametrize("name", ["book", "train"])
def test_a_script_that_is_imported_alone_sets_what_it_sets_on_loading(name: str) -> None:
    evaluate = script(PREDICT, "").replace("import torch\n", f"import torch\nimport {name}\n")
    found = told(
        {**AFTER, "evaluate.py": evaluate},
        {**BEFORE, "evaluate.py": script(PREDICT).replace("import torch\n", f"import torch\nimport {name}\n")},
    )
    lost = [m for _, _, m in found if "off there now" in m]
    assert bool(lost) is (name == "train")
