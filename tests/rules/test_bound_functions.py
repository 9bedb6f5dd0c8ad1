"""`partial(backward, fp16)`: the scaler is bound where the function is, whoever calls what comes of it."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import check_files, run_files

PROGRAM = """
    import json
    from functools import partial

    import torch
    import torch.nn.functional as F
    from apex import amp

    def run_backward(fp16, loss, optimizer, loss_id, **kwargs):
        if fp16:
            with amp.scale_loss(loss, optimizer, loss_id) as scaled_loss:
                scaled_loss.backward(**kwargs)
        else:
            loss.backward(**kwargs)

    def smoothness(x, output):
        (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        return ((gradient.float().norm(2, dim=1) - 1) ** 2).mean()

    class Pair(torch.nn.Module):
        def __init__(self, fp16):
            super().__init__()
            self.G = torch.nn.Linear(4, 4)
            self.D = torch.nn.Linear(4, 3)
            self.G_opt = torch.optim.SGD(self.G.parameters(), lr=0.1)
            self.D_opt = torch.optim.SGD(self.D.parameters(), lr=0.1)
            self.fp16 = fp16
            if fp16:
                (self.G, self.D), (self.G_opt, self.D_opt) = amp.initialize(
                    [self.G, self.D], [self.G_opt, self.D_opt], opt_level="O1", num_losses=2
                )

    class Trainer:
        def __init__(self, fp16):
            self.fp16 = fp16
            self.pair = Pair(fp16=self.fp16)
            self.penalty = 0.0

        def train(self, x, y):
            backwards = partial(run_backward, self.fp16)
            G, D = self.pair.G, self.pair.D

            self.pair.D_opt.zero_grad()
            x.requires_grad_()
            output = D(x)
            loss = F.cross_entropy(output, y)
            gp = smoothness(x, output)
            loss = loss + gp
            backwards(loss, self.pair.D_opt, loss_id=0)
            self.pair.D_opt.step()
            self.penalty = gp.item()

            self.pair.G_opt.zero_grad()
            loss = F.cross_entropy(D(G(x.detach())), y)
            backwards(loss, self.pair.G_opt, 1, retain_graph=False)
            self.pair.G_opt.step()
            return loss.item()

    def main():
        torch.manual_seed(0)
        trainer = Trainer(True)
        x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
        print(json.dumps([[trainer.train(x, y), trainer.penalty] for _ in range(4)]))

    if __name__ == "__main__":
        main()
    """
BY_HAND = """
    import json
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    G, D = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
    G_opt, D_opt = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (G, D))
    scaler = torch.amp.GradScaler("cpu")
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    seen = []
    for _ in range(4):
        D_opt.zero_grad()
        x.requires_grad_()
        with torch.autocast("cpu", dtype=torch.float16):
            output = D(x)
            loss = F.cross_entropy(output, y)
            (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
            gp = ((gradient.float().norm(2, dim=1) - 1) ** 2).mean()
        scaler.scale(loss + gp).backward()
        scaler.step(D_opt)
        G_opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(D(G(x.detach())), y)
        scaler.scale(loss).backward()
        scaler.step(G_opt)
        scaler.update()
        seen.append([loss.item(), gp.item()])
    print(json.dumps(seen))
    """


def test_the_scaler_is_bound_with_the_function() -> None:
    text = check_files({"train.py": PROGRAM})["train.py"]
    assert "def run_backward(scaler, fp16, loss, optimizer, loss_id, **kwargs):" in text
    assert "backwards = partial(run_backward, self.pair.scaler, self.fp16)" in text
    assert "backwards(loss, self.pair.G_opt, 1, retain_graph=False)" in text  # as it was
    assert "scaler.scale(loss).backward(**kwargs)" in text


def test_it_trains_as_the_program_written_by_hand(tmp_path: Path) -> None:
    texts = check_files({"train.py": PROGRAM, "hand.py": BY_HAND}, device="cpu")
    assert run_files(tmp_path, texts, "train.py") == run_files(tmp_path, texts, "hand.py")


def test_direct_calls_beside_the_bound_ones_pass_it_first() -> None:
    direct = PROGRAM.replace("backwards(loss, self.pair.G_opt, 1,", "run_backward(self.fp16, loss, self.pair.G_opt, 1,")
    text = check_files({"train.py": direct})["train.py"]
    assert "run_backward(self.pair.scaler, self.fp16, loss, self.pair.G_opt, 1, retain_graph=False)" in text
