"""Whether a value is float64: what is said of expressions is what NumPy and torch make of them; what of data sets, what a
loader gives."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from amp_migrate.reading.values.doubles import Doubles
from tests.reading.test_project import project

IMPORTS = """
import random
import cv2
import numpy as np
import torch
from PIL import Image, ImageOps
from torch.autograd import Variable
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset
"""
HELD = """
u8 = np.zeros((4, 3), np.uint8)
i64 = np.arange(3)
f32 = np.ones((4, 3), dtype="float32")
f64 = np.ones((4, 3))
t32 = torch.ones(4, 3)
whole = torch.arange(3)
"""


def kinds(program: str) -> set[str]:
    """What may be given to `asked(...)`, which the program calls once."""
    p = project(a=IMPORTS + textwrap.dedent(program))
    (module,) = p.modules
    (call,) = [c for c, _ in module.calls if isinstance(c.func, ast.Name) and c.func.id == "asked"]
    return {k.dtype for k in p.once(Doubles).of(module, call.args[0])}


EXPRESSIONS = """
f64
u8 / 255.0
u8 / 255
u8 - 0.5
f32 / 255.0
f32 * f64
(u8 - u8.mean()) / 2
f32 - f32.mean()
-f64
f64.T
f64[1:]
f64[0]
f32 if len(i64) else f32
[f64, f32][0]
{"x": f64}["x"]
np.zeros(3, dtype=np.float32)
np.zeros(3, np.float32)
np.full(3, 0.5)
np.full(3, 1)
np.arange(0, 1, 0.1)
np.linspace(0, 1, 3)
np.random.randn(3)
np.random.normal(0, 1, (3,))
np.random.uniform(size=3)
np.random.rand(3).astype("float32")
np.array([0.5, 1])
np.array([1, 2])
np.array([[0.5], [1]])
np.array([x / 2.0 for x in [1, 2]])
np.array([f32, f32])
np.array([0.5, 1], dtype=np.float32)
np.array(0.5)
np.asarray(f32)
np.float32(0.5)
np.stack([u8, u8]) / 255
np.concatenate([f32, f64])
np.concatenate((f32, f32))
np.where(u8 > 0, 0.0, u8)
np.where(f32 > 0, 0.0, f32)
np.where(f32 > 0, 1.0, 0.0)
np.where(f32 > 0, 1, 0)
np.clip(f32, 0.0, 1.0)
np.divide(u8, 255)
np.multiply(f32, 2.0)
np.exp(f32)
np.sqrt(f64)
np.mean(u8, axis=0)
np.mean(f32, axis=0)
np.expand_dims(f64, 0)
np.flip(f64, 1).copy()
np.transpose(u8, (1, 0)) / 255.0
np.median(u8, 0)
np.zeros_like(u8)
np.zeros_like(f64)
u8.astype(float)
u8.astype(np.float32) / 255
u8.astype("float64")
f64.astype(int)
f64.astype(np.float16)
u8.mean(axis=0)
f64.max(1)
f64.reshape(-1).copy()
torch.from_numpy(f64)
torch.from_numpy(f64).float()
torch.from_numpy(u8 / 255.0).unsqueeze(0)
torch.from_numpy(f64).to("cpu")
torch.from_numpy(f64).to(torch.float32)
torch.from_numpy(f64).type(torch.FloatTensor)
torch.from_numpy(f32)
torch.tensor(f64)
torch.tensor(f64, dtype=torch.float32)
torch.tensor([0.5, 1])
torch.tensor(0.5)
torch.as_tensor(f64)
torch.tensor([f64, f64])
torch.Tensor(f64)
torch.FloatTensor(f64)
torch.DoubleTensor([0.5])
torch.stack([t32, t32.double()])
torch.cat([t32, t32])
torch.zeros(3)
torch.zeros(3, dtype=torch.float64)
t32 * 2
t32 * torch.from_numpy(f64)
torch.from_numpy(u8) / 255
torch.from_numpy(u8).float()
torch.from_numpy(u8).double()
Variable(torch.from_numpy(f64))
whole * 0.5
whole / 2
whole.float().type_as(t32)
torch.from_numpy(f64).mean(0)
torch.from_numpy(f64).view(-1).contiguous().numpy()
""".strip().splitlines()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_are_what_numpy_and_torch_make_of_them(expression: str) -> None:
    pytest.importorskip("torch")
    names: dict[str, Any] = {}
    kept = [line for line in IMPORTS.splitlines() if "cv2" not in line and "PIL" not in line]
    exec("\n".join(kept) + HELD, names)
    dtype = str(eval(expression, names).dtype).removeprefix("torch.")
    found = kinds(f"{HELD}asked({expression})")
    single = dtype in ("float32", "float16")
    assert found <= ({"double", "scalar"} if dtype == "float64" else {"single"} if single else {"integer", "index"})
    assert found


@pytest.mark.parametrize(
    "expression",
    [
        "unseen",
        "np.load(path)",
        "f32 * i64",
        "f64.astype(dtype)",
        "torch.from_numpy(f64).to(like)",
        "transform(f64)",
        "frame.values",
        "np.random.uniform(low, high)",
        "np.array(unseen)",
        "np.array(images, dtype=dtype)",
        "np.zeros(3, **options)",
    ],
)
def test_what_is_not_in_sight_is_unknown(expression: str) -> None:
    assert kinds(f"{HELD}asked({expression})") == {"unknown"}


@pytest.mark.parametrize(
    "expression", ["unseen / 255.0", "np.log(u8)", "cv2.imread(path, cv2.IMREAD_UNCHANGED) / 255.0"]
)
def test_what_is_divided_is_floating_in_one_width_or_another(expression: str) -> None:
    assert kinds(f"{HELD}asked({expression})") == {"floating"}


@pytest.mark.parametrize(
    ("read", "dtype"),
    [
        ("cv2.imread(path) / 255.0", "double"),
        ("cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)", "integer"),
        ("np.array(Image.open(path).convert('RGB').resize((3, 3))) / 255", "double"),
        ("np.asarray(ImageOps.expand(Image.open(path), 2), dtype=np.float32) / 255", "single"),
    ],
)
def test_images_that_are_read(read: str, dtype: str) -> None:
    assert kinds(f"asked({read})") == {dtype}


DATA = """
class Scaled:
    def __init__(self, top):
        self.top = top

    def __call__(self, image):
        image = np.where(image > self.top, self.top, image)
        return image / self.top

class Images(Dataset):
    def __init__(self, images, transform=None, kind="scaled"):
        self.images = images
        self.transform = transform
        self.kind = kind
        self.scaled = Scaled(4.0)

    def __getitem__(self, index):
        ITEM

def helper(x):
    return x.reshape(-1)
"""


def loaded(item: str, taken: str = "x", loop: str = "for x in DataLoader(Images(None), batch_size=2)") -> set[str]:
    body = textwrap.dedent(item).strip().replace("\n", "\n        ")
    return kinds(DATA.replace("ITEM", body) + f"\n{loop}:\n    asked({taken})\n")


@pytest.mark.parametrize(
    ("item", "taken", "dtype"),
    [
        ("return np.zeros(3)", "x", "double"),
        ("return np.zeros(3), 1", "x[0]", "double"),
        ("return np.zeros(3), 1", "x[1]", "index"),
        ("return {'x': np.zeros(3), 'y': 0.5}", "x['x'].cuda()", "double"),
        ("return {'x': np.zeros(3), 'y': 0.5}", "x['y']", "double"),  # the loader makes float64 of Python's numbers
        ("row = {}\nrow['x'] = np.zeros(3)\nreturn row", "x['x']", "double"),
        ("return torch.from_numpy(np.zeros(3)).float()", "x", "single"),
        ("return np.float32(0.5)", "x", "single"),
        ("return torch.FloatTensor(np.zeros(3))", "x", "single"),
        ("return self.images[index]", "x", "unknown"),
        ("x = np.zeros(3)\nif self.transform is not None:\n    x = self.transform(x)\nreturn x", "x", "double"),
        ("x = cv2.imread('a')\nx /= 255.0\nreturn x", "x", "index"),
        ("return self.scaled(cv2.imread('a'))", "x", "double"),
        ("return self.scaled(cv2.imread('a').astype(np.float32))", "x", "single"),
        (
            "x = cv2.imread('a')\nif self.kind == 'scaled':\n    x = self.scaled(x)\nelif self.kind == 'half':\n    "
            "x = x.astype(np.float16)\nelse:\n    raise ValueError\nreturn x",
            "x",
            "double",
        ),
        ("one = helper(np.zeros(3))\nreturn helper(np.zeros(3, dtype=np.float32))", "x", "single"),
        ("rows = []\nfor i in range(3):\n    rows.append(np.random.randn(3))\nreturn np.stack(rows)", "x", "double"),
    ],
)
def test_what_a_loader_gives(item: str, taken: str, dtype: str) -> None:
    assert loaded(item, taken) == {dtype}


def test_an_object_that_many_calls_make_with_numbers_of_their_own() -> None:
    made = "\n".join(f"Scaled({n}.5)" for n in range(30))
    item = "return self.scaled(cv2.imread('a'))"
    assert loaded(item, loop=f"{made}\nfor x in DataLoader(Images(None))") == {"double"}


def test_what_one_way_makes_float64() -> None:
    item = "x = cv2.imread('a')\nif index:\n    x = x / 255.0\nelse:\n    x = x.astype(np.float32)\nreturn x"
    assert loaded(item) == {"double", "single"}
    assert loaded("if index:\n    return np.zeros(3)\nreturn self.images[index]") == {"double", "unknown"}


@pytest.mark.parametrize(
    ("loop", "dtype"),
    [
        ("for i, x in enumerate(DataLoader(dataset=Images(None)))", "double"),
        ("for x in tqdm(DataLoader(Subset(Images(None), range(3))))", "double"),
        ("for x in DataLoader(ConcatDataset([Images(None), Images(None)]))", "double"),
        ("for x in DataLoader(Images(None), collate_fn=unseen)", "unknown"),
        ("for x in DataLoader(Images(None), collate_fn=joined)", "single"),
        ("for x in DataLoader(Images(None), collate_fn=stacked)", "double"),
        ("for x, y in DataLoader(TensorDataset(torch.from_numpy(np.zeros(3)), unseen))", "double"),
        ("for x in DataLoader(unseen)", "unknown"),
        ("for x in unseen(DataLoader(Images(None)))", "unknown"),
        ("for x in batches()", "double"),
    ],
)
def test_ways_to_a_data_set(loop: str, dtype: str) -> None:
    functions = """
from tqdm import tqdm

def joined(batch):
    return torch.FloatTensor(np.array(batch))

def stacked(batch):
    rows = [torch.from_numpy(b) for b in batch]
    return torch.stack(rows, 0)

def batches():
    for _ in range(3):
        yield np.zeros(3)
"""
    assert loaded("return np.zeros(3)", loop=functions + loop) == {dtype}


def test_pairs_that_are_put_together_by_hand() -> None:
    joins = "def joins(batch):\n    x, y = zip(*batch)\n    return torch.tensor(np.stack(x)), torch.tensor(y)\n"
    loop = f"{joins}for x, y in DataLoader(Images(None), collate_fn=joins)"
    assert loaded("return np.zeros(3), 1", loop=loop) == {"double"}
    assert loaded("return np.zeros(3), 1", "y", loop) == {"index"}


def test_what_hangs_on_itself_comes_to_an_end() -> None:
    assert kinds("x = unseen\nfor i in range(3):\n    x = x * 2\nasked(x)") == {"unknown"}
    assert kinds("def f(x):\n    return f(x / 2)\nasked(f(np.zeros(3)))") == {"unknown"}
    assert kinds("x = np.zeros(3)\nfor i in range(3):\n    x = x * 2\nasked(x)") == {"double"}
