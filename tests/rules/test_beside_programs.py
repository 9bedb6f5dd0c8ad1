"""Code beside the program: tests, notebooks and scripts that run a model, but in processes that never set Apex up. Nothing
was cast there, so nothing is asked of them, and they do not hold the program back."""

from __future__ import annotations

import textwrap

import pytest

from tests.rules.helpers import check_files, rewrite_files

TRAIN = """
    import torch
    from apex import amp
    from models import build


    def train_model(model, batches, args):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        for x, y in batches:
            loss = (model(x) - y).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
    """
MODELS = """
    import torch


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(3, 1)

        def forward(self, x):
            return self.line(x)

        def describe(self, x):
            return self.line(x) * 2


    def build():
        return Net()
    """
MAIN = """
    import argparse
    from library.train import train_model
    from models import build

    parser = argparse.ArgumentParser()
    parser.add_argument("--level", default="O1")
    train_model(build(), [], parser.parse_args())
    """
# All of these load the file that initializes, and none comes by `initialize`.
BESIDE = {
    "tests/test_net.py": """
        import torch
        from library import train
        from models import build


        def test_describe():
            model = build()
            print(model.describe(torch.zeros(1, 3)))
        """,
    "demo/show.py": """
        import threading
        import torch
        from library import train
        from models import build


        def work():
            print(model.describe(torch.zeros(1, 3)))


        def main():
            global model
            model = build()
            threading.Thread(target=work).start()


        if __name__ == "__main__":
            main()
        """,
}


@pytest.mark.parametrize("path", BESIDE)
def test_what_never_comes_by_initialize_stays_as_it_is(path: str) -> None:
    files = {"library/train.py": TRAIN, "models.py": MODELS, "main.py": MAIN, path: BESIDE[path]}
    texts = check_files(files)
    assert "autocast" in texts["library/train.py"]
    assert "autocast" not in texts[path]


def test_what_may_come_by_it_is_told_and_holds_nothing_back() -> None:
    script = BESIDE["demo/show.py"].replace("target=work", "target=choose(train.train_model, work)")
    results = rewrite_files({"library/train.py": TRAIN, "models.py": MODELS, "main.py": MAIN, "demo/show.py": script})
    assert [(f.code, f.line, f.review) for f in results["demo/show.py"].findings] == [("AMP502", 8, "review")]
    assert results["library/train.py"].status == "migrated"


SOLVER = """
    import torch
    from apex import amp
    from detector import Detector, create
    from elsewhere import configure, wrap


    def train_epoch(model, loader, optimizer):
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()


    class Solver:
        def __init__(self):
            self.model = create("net")
            self.optimizer = configure(self.model)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

        def train(self, loader):
            train_epoch(wrap(self.model), loader, self.optimizer)


    if __name__ == "__main__":
        Solver().train([])
    """
DETECTOR = """
    from elsewhere import registry


    def create(name):
        return registry.make(name)


    class Detector:
        def __init__(self, path):
            self.model = create(path)

        def __call__(self, images):
            boxes, scores = self.model(images)
            return boxes, scores
    """
# Which of the demonstrations runs is chosen by name: nothing in sight calls the detector.
DEMO = """
    import sys
    from detector import Detector


    def demo_image(detect, images):
        print(detect(images))


    if __name__ == "__main__":
        getattr(sys.modules[__name__], "demo_" + sys.argv[1])(Detector(sys.argv[2]), [])
    """


@pytest.mark.parametrize("also", ["nothing", "training", "registered"])
def test_a_method_that_nothing_calls_runs_where_objects_of_its_class_are_made(also: str) -> None:
    solver, detector = textwrap.dedent(SOLVER), textwrap.dedent(DETECTOR)
    if also == "training":
        solver += "    Detector('last.pt')\n"
    if also == "registered":
        detector = detector.replace("class Detector", "@registry.register\nclass Detector")
    texts = check_files({"train.py": solver, "detector.py": detector, "demo.py": DEMO})
    assert "torch.autocast(" in texts["train.py"]
    assert ("autocast" in texts["detector.py"]) is (also != "nothing")


FACTORY = """
    from apex import amp
    from registry import make


    class Hook(Base):
        def evaluate(self, runner, results):
            return self.dataset.evaluate(results)

        def after(self, runner):
            with amp.scale_loss(runner.outputs["loss"], runner.optimizer) as scaled_loss:
                scaled_loss.backward()
            runner.optimizer.step()


    def build_dataset(cfg):
        return make(cfg)


    def build_model(cfg):
        return make(cfg)


    def train(cfg):
        model = build_model(cfg.model)
        optimizer = make_optimizer(model)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        settings = copy.deepcopy(cfg.loader)
        runner = Runner(model, optimizer=optimizer)
        runner.run(build_dataset(cfg.data), Hook(build_dataset(cfg.data)), settings)
    """
REGISTRY = """
    def make(cfg):
        obj = cfg.pop("type")(**cfg)
        return obj
    """


def test_what_one_factory_makes_for_all_is_not_all_a_model() -> None:
    source = "import copy\nfrom framework import Base, Runner, make_optimizer\n" + textwrap.dedent(FACTORY)
    source = source.replace(
        "def evaluate", "def __init__(self, dataset):\n        self.dataset = dataset\n\n    def evaluate"
    )
    texts = check_files({"train.py": source, "registry.py": REGISTRY})
    assert 'model.forward = torch.autocast("cuda", dtype=torch.float16)(model.forward)' in texts["train.py"]
    assert "self.dataset.evaluate(results)" in texts["train.py"]


def test_what_the_factory_of_models_makes_for_other_factories_is_no_model() -> None:
    registry = """
        def make(cfg, registry):
            chosen = registry.get(cfg.pop("type"))
            return chosen(**cfg)
        """
    train = """
        from apex import amp
        from transforms import Chain
        from registry import make
        from kinds import NETWORKS, SCHEDULES


        def build_network(cfg):
            return make(cfg, NETWORKS)


        def build_schedule(cfg):
            schedule = make(cfg, SCHEDULES)
            return schedule


        def train(cfg, optimizer, batches, criterion):
            model = build_network(cfg.model)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            Schedule = build_schedule(cfg.schedule)
            schedule = Schedule(optimizer, cfg)
            teacher = build_network(cfg.teacher)
            for batch in batches:
                loss = criterion(model(batch), teacher(batch))
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
                schedule.step()
        """
    transforms = """
        from registry import make
        from kinds import TRANSFORMS


        class Chain:
            def __init__(self, wanted):
                self.steps = []
                for cfg in wanted:
                    step = make(cfg, TRANSFORMS)
                    self.steps.append(step)

            def __call__(self, data):
                for step in self.steps:
                    data = step(data)
                return data
        """
    kinds = "NETWORKS, SCHEDULES, TRANSFORMS = {}, {}, {}\n"
    texts = check_files({"train.py": train, "registry.py": registry, "transforms.py": transforms, "kinds.py": kinds})
    assert "autocast" not in texts["transforms.py"]
    assert "\n    schedule = Schedule(optimizer, cfg)\n" in texts["train.py"]
    assert "autocast('cuda', dtype=torch.float16):\n            loss = criterion(model(batch), teacher(batch))" in (
        texts["train.py"].replace('"', "'")
    )


TOKENIZED = """
    import torch
    from apex import amp


    class PreTrained(torch.nn.Module):
        @classmethod
        def from_pretrained(cls, path):
            model = cls(path)
            return model

        def generate(self, ids):
            return [self(i).argmax().item() for i in ids]


    def main(model_class, tokenizer_class, path, optimizer):
        tokenizer = tokenizer_class.from_pretrained(path)
        model = model_class.from_pretrained(path)
        model = amp.initialize(model, opt_level="O3")
        ids = tokenizer.encode("text")
        found = model.generate(ids)
        print(ids[0], found[0].tolist())
    """


def test_a_tokenizer_is_no_model_and_what_a_method_generates_is_not_cast() -> None:
    text = check_files({"generate.py": TOKENIZED})["generate.py"]
    assert '\n    ids = tokenizer.encode("text")\n' in text
    assert "        found = model.generate(ids)\n" in text
    assert ".float()" not in text
