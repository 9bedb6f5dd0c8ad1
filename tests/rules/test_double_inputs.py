"""Models that are given float64, which Apex cast and autocast leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_rewrite, rewrite, rewrite_files, run_files, texts_of
from tests.rules.programs import APEX_LOOP, MODEL, NATIVE_LOOP, apex, found, initialize, native


def loops(old: str, new: str, before: str = "") -> tuple[str, str]:
    """The loop that gives the model something, under Apex and now."""
    return before + APEX_LOOP.lstrip().replace("model(x)", old), before + NATIVE_LOOP.lstrip().replace("model(x)", new)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model(x.double())", "model(x.float())"),
        ("model(x.cuda().to(torch.float64))", "model(x.cuda().float())"),
        ("model(x.to(dtype=torch.double))", "model(x.float())"),
        ("model(y, x=x.type(torch.float64))", "model(y, x=x.float())"),
    ],
)
def test_a_cast_at_the_call_casts_to_float32(old: str, new: str, level: str) -> None:
    loop, _ = loops(old, new)
    result = rewrite(apex(loop, initialize(f'opt_level="{level}"')))
    assert result.after is not None
    assert new in result.after
    (finding,) = found(result, "AMP524")
    assert "float64, which Apex cast" in finding.message


@pytest.mark.parametrize(
    "made",
    [
        "x = x.double()\n",
        "x = x.to(torch.float64).cuda()\n",
        "x = x.double().to(device)\n",
        "x = torch.tensor(x, dtype=torch.float64)\n",
        "x, z = x.double(), y\n",
    ],
)
def test_a_name_that_holds_float64_is_cast_where_it_is_given(made: str) -> None:
    loop, now = loops("model(x)", "model(x.float())", made)
    check_rewrite(apex(loop), native(now))


@pytest.mark.parametrize(
    "made",
    [
        "x = x.float()\n",
        "if double:\n    x = x.double()\n",
        "x = x.double()\nx = prepare(x)\n",
        "x = x.to(torch.float64, copy=True).half()\n",
        "x = x.double().to(other)\n",
        "y = y.double()\n",
    ],
)
def test_what_may_be_something_else_is_left_alone(made: str) -> None:
    loop, _ = loops("model(x)", "model(x)", made)
    result = rewrite(apex(loop))
    assert result.after is not None
    assert "model(x)" in result.after
    assert not found(result, "AMP524")


@pytest.mark.parametrize(
    "line", ["model.double()", "torch.set_default_dtype(torch.float64)", "model.to(torch.float64)"]
)
def test_a_model_in_float64_is_given_what_it_was(line: str) -> None:
    loop, _ = loops("model(x.double())", "")
    result = rewrite(apex(loop, model=f"{MODEL}\n{line}"))
    assert "model(x.double())" in (result.after or result.before)
    assert not found(result, "AMP524")


PROGRAM = """
import json
import torch
from torch import nn
{imports}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{initialize}
losses = []
for step in range(3):
    x = torch.ones(2, 4, dtype=torch.float64)
    loss = model(x).float().pow(2).mean() + model(x.to(torch.float64)).float().pow(2).mean()
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
"""


def test_what_is_written_trains(tmp_path: Path) -> None:
    program = PROGRAM.format(
        imports="from apex import amp", initialize='model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    )
    result = rewrite(program, device="cpu")
    assert result.after is not None
    assert result.after.count(".float()) .float()") == 0
    assert "model(x.float())" in result.after
    losses = run_files(tmp_path, {"train.py": result.after}, "train.py")
    assert losses[-1] < losses[0]
    kept = result.after.replace("model(x.float())", "model(x)")
    with pytest.raises(AssertionError, match=r"(?i)double"):
        run_files(tmp_path, {"train.py": kept}, "train.py")


DATA = """
import numpy as np
import torch
from torch.utils.data import Dataset

class Images(Dataset):
    def __init__(self, transform=None):
        self.transform = transform
        self.images = np.arange(48, dtype=np.uint8).reshape(6, 8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = np.array(self.images[index], dtype=np.uint8)
        MADE
        return {"image": image, "label": 0.5}
"""
TRAIN = """
import json
import torch
from torch import nn
from torch.utils.data import DataLoader
from apex import amp
from data import Images
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 1)

    def forward(self, x):
        return self.body(x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
losses = []
for epoch in range(2):
    for batch in DataLoader(Images(), batch_size=3):
        image = batch["image"]
        out = model(GIVEN)
        loss = nn.functional.mse_loss(out[:, 0], batch["label"])
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(json.dumps(losses))
"""


def with_data(made: str, given: str = "image") -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The files of a program once migrated, whose data set makes its images so, and what is told of float64."""
    made = made.replace("\n", "\n        ")
    files = {"data.py": DATA.replace("MADE", made), "train.py": TRAIN.replace("GIVEN", given)}
    results = rewrite_files(files, device="cpu")
    told = [(f.code, f.message) for r in results.values() for f in r.findings if f.code in ("AMP524", "AMP544")]
    return texts_of(results), told


@pytest.mark.parametrize(
    ("made", "given", "now"),
    [
        ("image = image / 255.0", "image", "image.float()"),
        ("image = torch.from_numpy(image / 255)", "image", "image.float()"),
        ("image = np.where(image > 4, 4.0, image)", "image * 2", "(image * 2).float()"),
        ("image = (image - image.mean()) / 9", "x=image.contiguous()", "x=image.contiguous().float()"),
        (
            "if index % 2 < 2:\n    image = image / 255\nelse:\n    image = image.astype(np.float32)",
            "image",
            "image.float()",
        ),
        # What is not known is floating, too, once it is divided, or goes through what gives nothing else.
        (
            "if index < 0:\n    image = self.unseen(image)\nimage = torch.from_numpy(image / 255)",
            "image",
            "image.float()",
        ),
        (
            "image = np.sqrt(self.unseen(image)) if index < 0 else image\nimage = image / 5\nimage -= 0.5\n"
            "image = torch.from_numpy(image.transpose())",
            "image",
            "image.float()",
        ),
    ],
)
def test_what_numpy_makes_float64_is_cast_where_it_is_given(made: str, given: str, now: str, tmp_path: Path) -> None:
    texts, ((code, message),) = with_data(made, given)
    assert code == "AMP524"
    assert "of data.py)" in message
    assert ("is float64 on some way" in message) == ("if" in made)
    assert f"model({now})" in texts["train.py"]
    losses = run_files(tmp_path, texts, "train.py")
    assert len(losses) == 4
    texts["train.py"] = texts["train.py"].replace(f"model({now})", f"model({given})")
    with pytest.raises(AssertionError, match=r"(?i)double"):
        run_files(tmp_path, texts, "train.py")


@pytest.mark.parametrize(
    "made",
    [
        "image = (image / 255.0).astype(np.float32)",
        "image = torch.from_numpy(image / 255.0).float()",
        "image = torch.FloatTensor(image / 255.0)",
        "image = image.astype(np.float32) / 255.0",
        "image = torch.from_numpy(image) / 255.0",
        "image = image.astype(np.float32)\nif self.transform:\n    image = image.astype(float)",
    ],
)
def test_what_is_float32_by_then_is_left_alone(made: str, tmp_path: Path) -> None:
    texts, told = with_data(made)
    assert told == []
    assert "model(image)" in texts["train.py"]
    run_files(tmp_path, texts, "train.py")


def test_what_is_cast_on_the_way_to_the_model_is_left_alone() -> None:
    for given in (
        "image.float()",
        "image.to(torch.float32)",
        "image.type(torch.FloatTensor)",
        "batch['label'].float()",
    ):
        texts, told = with_data("image = image / 255.0", given)
        assert (told, f"model({given})" in texts["train.py"]) == ([], True)


def test_what_may_be_float64_or_something_that_is_not_seen_is_told() -> None:
    texts, ((code, message),) = with_data("if index:\n    image = image / 255.0\nelse:\n    image = unseen(image)")
    assert code == "AMP544"
    assert "image may be float64 (image / 255.0: line 16 of data.py)" in message
    assert "model(image)" in texts["train.py"]
    assert with_data("image = unseen(image / 255.0)")[1] == []
    # A number of Python's is no tensor, a product of what is not known may be an integer.
    for made in (
        "image = torch.from_numpy(image / 255) if index else unseen(image) / 255",
        "image = unseen(image) * 2 if index else image / 255",
    ):
        source = with_data(made, "image if epoch else unseen(epoch) / 2" if "from_numpy" in made else "image")
        assert [code for code, _ in source[1]] == ["AMP544"], made


@pytest.mark.parametrize("told", [False, True])
def test_which_data_set_it_is_a_test_may_tell_that_takes_its_items_apart_otherwise(told: bool) -> None:
    """Labels of one data set are float64, and stand where another has images; a branch gets those of its own alone."""
    two = "first, second = batch\n            out = model(first) + model(second)"
    other = f"if PAIRS:\n            {two}\n        else:\n            "
    text = TRAIN.replace(
        'image = batch["image"]\n        out = model(GIVEN)\n',
        f"{other}image, label = batch\n            out = model(image)\n",
    )
    text = text.replace('batch["label"]', "torch.zeros(3)").replace(
        "DataLoader(Images(), batch_size=3)", "DataLoader(data, batch_size=3)"
    )
    text = text.replace("losses = []\n", "losses = []\ndata = Pairs() if PAIRS else Labelled()\n", 1).replace(
        "import Images", "import Labelled, Pairs", 1
    )
    text = text.replace("losses = []\n", "PAIRS = bool(sys.argv[1:])\nlosses = []\n", 1).replace(
        "import json\n", "import json\nimport sys\n", 1
    )
    if told:
        text = text.replace(
            "image, label = batch\n            out = model(image)", "image = batch[0]\n            out = model(image)"
        )
    length = "def __len__(self):\n        return 6\n"
    sets = "".join(
        f"class {name}(Dataset):\n    {length}\n    def __getitem__(self, index):\n        return {item}\n\n"
        for name, item in (
            ("Labelled", "unseen(index), np.array(index, dtype=float)"),
            ("Pairs", "unseen(index), unseen(index)"),
        )
    )
    head = DATA.partition("class ")[0]
    results = rewrite_files({"data.py": head + sets, "train.py": text}, device="cpu")
    said = [f.code for r in results.values() for f in r.findings if f.code == "AMP544"]
    assert said == (["AMP544"] if told else [])


def test_what_a_function_is_handed_is_cast_in_it() -> None:
    helper = "\ndef run(model, image):\n    return model(image)\n\nmodel = Net()\n"
    train = TRAIN.replace("\nmodel = Net()\n", helper).replace("out = model(GIVEN)", "out = run(model, image)")
    files = {"data.py": DATA.replace("MADE", "image = image / 255.0"), "train.py": train}
    after = rewrite_files(files, device="cpu")["train.py"].after
    assert after is not None
    assert after.count(".float()") == 1
    assert "return model(image.float())" in after


@pytest.mark.parametrize("given", ["np.zeros((3, 8))", "image, np.linspace(0, 1, 5)[epoch]", "image, np.arange(5) / 5"])
def test_what_is_no_tensor_yet_is_left_alone(given: str) -> None:
    train = TRAIN.replace("import torch\n", "import torch\nimport numpy as np\n", 1).replace("GIVEN", given)
    files = {"data.py": DATA.replace("MADE", "image = image.astype(np.float32)"), "train.py": train}
    result = rewrite_files(files, device="cpu")["train.py"]
    assert not [f for f in result.findings if f.construct == "a call of the model"]
    assert result.after is not None
    assert f"model({given})" in result.after
