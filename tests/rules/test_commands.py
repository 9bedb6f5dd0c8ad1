"""Commands about Apex in the code of a program that needs none any more."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import APEX_LOOP, apex, found


def program(lines: str, loop: str = APEX_LOOP) -> str:
    return f"{lines}\n" + apex(loop)


@pytest.mark.parametrize(
    ("lines", "review", "said"),
    [
        (
            "import subprocess\nsubprocess.check_call(['pip', 'show', 'apex'])",
            "review",
            "`pip show apex` is run here and raises where that fails",
        ),
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', './apex'], check=True)",
            "review",
            "`-m pip install ./apex` is run here and raises where that fails",
        ),
        ("from subprocess import check_output as out\nout('pip3 show apex', shell=True)", "review", "raises"),
        ("import subprocess as sp\ncommand = ['pip', 'show', 'apex']\nsp.check_call(command)", "review", "raises"),
        ("import subprocess\nsubprocess.run(['pip', 'show', 'apex'])", "look", "is run here: the migrated program"),
        ("import subprocess\nsubprocess.run(['pip', 'show', 'apex'], check=False)", "look", "is run here: "),
        (
            "import subprocess\ntry:\n    subprocess.check_call(['pip', 'show', 'apex'])\nexcept Exception:\n    pass",
            "look",
            "raises where that fails",
        ),
        ("import os\nos.system('git clone https://github.com/NVIDIA/apex && cd apex')", "look", "is run here: "),
        ("import importlib.metadata\nprint(importlib.metadata.version('apex'))", "review", "`apex` is asked for here"),
        ("import pkg_resources\npkg_resources.require('apex==0.1')", "review", "raises where Apex is not installed"),
    ],
)
def test_a_command_about_apex_is_named(lines: str, review: str, said: str) -> None:
    result = rewrite(program(lines))
    assert result.after is not None
    (told,) = found(result, "AMP852")
    assert (told.status, told.review) == ("note", review)
    assert said in told.message


@pytest.mark.parametrize(
    "lines",
    [
        "import subprocess\nsubprocess.check_call(['pip', 'show', 'torch'])  # no apex",
        "import subprocess\nsubprocess.check_call(['pip', 'install', 'apex-tools'])",
        "import subprocess\nsubprocess.check_call(['ls', 'apex'])",
        "import importlib.metadata\nprint(importlib.metadata.version('apexes'))",
        "def check_call(x):\n    return x\n\n\ncheck_call(['pip', 'show', 'apex'])",
    ],
)
def test_what_says_nothing_of_apex_is_not(lines: str) -> None:
    assert not found(rewrite(program(lines)), "AMP852")


SHOW = "import subprocess\nsubprocess.check_call(['pip', 'show', 'apex'])"


def test_nor_where_apex_is_still_needed() -> None:
    stays = rewrite(program(SHOW, APEX_LOOP.replace("scaled_loss.backward()", "run_backward_of(scaled_loss)")))
    assert stays.after is None
    assert not found(stays, "AMP852")
    kept = f"{SHOW}\nfrom apex.optimizers import FusedLAMB\nprint(FusedLAMB([p]))"
    assert not found(rewrite(program(kept)), "AMP852")
    kept = f"{SHOW}\nfrom apex.optimizers import FusedAdam\nprint(FusedAdam([p], bias_correction=False))"
    assert not found(rewrite(program(kept)), "AMP852")


def test_nor_where_some_of_apex_was_to_be_left_alone() -> None:
    left = f"{SHOW}\nfrom apex.parallel import SyncBatchNorm\nprint(SyncBatchNorm(2)) # amp-migrate: ignore"
    result = rewrite(program(left))
    assert result.after is not None
    assert "from apex.parallel" in result.after
    assert not found(result, "AMP852")


def test_an_installer_apart_speaks_for_all_programs() -> None:
    installer = f"if __name__ == '__main__':\n    {SHOW.replace(chr(10), chr(10) + '    ')}\n"
    results = rewrite_files({"install.py": installer, "train.py": apex(APEX_LOOP)})
    assert found(results["install.py"], "AMP852")
    stays = apex(APEX_LOOP.replace("scaled_loss.backward()", "run_backward_of(scaled_loss)"))
    results = rewrite_files({"install.py": installer, "train.py": apex(APEX_LOOP), "other.py": stays})
    assert not found(results["install.py"], "AMP852")
