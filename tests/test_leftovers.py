from __future__ import annotations

import pytest

from amp_migrate.findings import Finding
from amp_migrate.leftovers import leftovers
from amp_migrate.texts import Kind, kind_of


def found(text: str, kind: Kind) -> list[tuple[int, int, str]]:
    return [(f.line, f.column, f.code) for f in sorted(set(leftovers(text, kind)))]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("requirements.txt", "requirements"),
        ("requirements-dev.txt", "requirements"),
        ("docker/requirements/train.txt", "requirements"),
        ("my_requirements.in", "requirements"),
        ("environment.yml", "environment"),
        ("conda_env.yaml", "environment"),
        ("setup.py", "setup.py"),
        ("setup.cfg", "setup.cfg"),
        ("pyproject.toml", "pyproject"),
        (".gitmodules", "gitmodules"),
        ("Dockerfile", "commands"),
        ("docker/Dockerfile.gpu", "commands"),
        ("gpu.dockerfile", "commands"),
        ("docker/Dockerfile~", None),
        ("scripts/run.sh", "commands"),
        (".github/workflows/ci.yml", "commands"),
        (".travis.yml", "commands"),
        ("Makefile", "commands"),
        ("train.slurm", "commands"),
        ("README.md", "prose"),
        ("docs/install.rst", "prose"),
        ("README", "prose"),
        ("CHANGELOG.md", None),
        ("recipe/meta.yaml", "environment"),
        ("INSTALL.txt", "prose"),
        ("train.py", None),
        ("makefile_parser.py", None),
        ("data/words.txt", None),
        ("a.json", None),
    ],
)
def test_kinds(path: str, kind: str | None) -> None:
    assert kind_of(path) == kind


class TestRequirements:
    @pytest.mark.parametrize(
        "line",
        [
            "apex",
            "apex==0.1",
            "apex >= 0.9.10dev",
            "Apex ; python_version > '3.6'",
            "nvidia-apex",
            "nvidia_apex~=0.1",
            "apex @ git+https://github.com/NVIDIA/apex",
            "git+https://github.com/NVIDIA/apex.git@22.04-dev",
            "git+https://github.com/NVIDIA/apex#egg=apex",
            "-e git+https://github.com/nvidia/apex.git#egg=apex",
            "--editable=git+ssh://git@github.com/NVIDIA/apex",
            "apex[cuda]==1",
            "apex  # mixed precision",
        ],
    )
    def test_apex(self, line: str) -> None:
        assert found(f"torch\n{line}\nnumpy\n", "requirements") == [(2, 1, "AMP851")]

    @pytest.mark.parametrize(
        "line",
        [
            "apexpy==1.0",
            "apex-legends",
            "# apex",
            "apex-charts",
            "torch  # apex needs it",
            "oracle-apex",
            "apexlib",
            "apex.py",
        ],
    )
    def test_other_packages(self, line: str) -> None:
        assert found(f"{line}\n", "requirements") == []

    def test_environment(self) -> None:
        text = "dependencies:\n  - pytorch\n  - nvidia-apex=0.1\n  - conda-forge::nvidia-apex\n  - pip:\n    - 'apex'\n"
        text += "    - git+https://github.com/NVIDIA/apex\n  - apexpy\n"
        assert [line for line, _, _ in found(text, "environment")] == [3, 4, 6, 7]

    def test_setup_cfg(self) -> None:
        text = "[metadata]\nname = apex\n[options]\ninstall_requires =\n    torch\n    apex>=0.1\n"
        text += "[isort]\nknown_third_party =\n    apex\n[options.extras_require]\nfp16 = apex\n"
        assert [line for line, _, _ in found(text, "setup.cfg")] == [6, 11]

    def test_pyproject(self) -> None:
        text = (
            '[project]\nname = "apex"\nkeywords = ["apex"]\ndependencies = [\n  "torch",\n  "apex>=0.1",\n]\n'
            '[project.optional-dependencies]\nfp16 = ["apex @ git+https://github.com/NVIDIA/apex"]\n'
            '[tool.poetry.dependencies]\napex = {git = "https://github.com/NVIDIA/apex"}\nnumpy = "1"\n'
            '[tool.uv.sources.apex]\ngit = "x"\n[tool.isort]\nknown_third_party = ["apex"]\n'
            '[build-system]\nrequires = ["apex"]\n'
        )
        assert [line for line, _, _ in found(text, "pyproject")] == [6, 9, 11, 13, 18]

    def test_setup_py(self) -> None:
        text = (
            "REQUIRED = ['torch', 'apex']\nsetup(name='apex', keywords=['apex'],\n  install_requires=REQUIRED,\n"
            "  extras_require={'fp16': ['nvidia-apex>=0.1']},\n  dependency_links=['git+https://github.com/NVIDIA/apex'])\n"
        )
        assert found(text, "setup.py") == [(1, 22, "AMP851"), (4, 28, "AMP851"), (5, 21, "AMP851")]
        assert found("print 'apex'\n", "setup.py") == []

    def test_submodule(self) -> None:
        text = '[submodule "apex"]\n\tpath = third_party/apex\n\turl = https://github.com/NVIDIA/apex.git\n'
        assert found(text, "gitmodules") == [(3, 2, "AMP852")]


class TestCommands:
    @pytest.mark.parametrize(
        "line",
        [
            "git clone https://github.com/NVIDIA/apex",
            "RUN git clone --depth 1 https://github.com/NVIDIA/apex.git /tmp/apex",
            "git clone git@github.com:NVIDIA/apex.git",
            "git clone https://github.com/ptrblck/apex.git",
            "git submodule add https://github.com/NVIDIA/apex third_party/apex",
            "pip install apex",
            "      run: pip3 install -v nvidia-apex==0.1",
            "pip install git+https://github.com/NVIDIA/apex",
            'pip install -v --no-cache-dir --global-option="--cpp_ext" --global-option="--cuda_ext" ./',
            "pip install -v --disable-pip-version-check --no-cache-dir ./apex",
            "python setup.py install --cuda_ext --cpp_ext",
            "conda install -c conda-forge nvidia-apex",
            "poetry add apex",
            "python -c 'import apex'",
            "python -c 'import vissl, apex'",
            "bash ./docker/common/install_apex.sh",
            "RUN ./install_apex.sh",
        ],
    )
    def test_installations(self, line: str) -> None:
        assert [(n, code) for n, _, code in found(f"set -e\n{line}\n", "commands")] == [(2, "AMP852")]

    @pytest.mark.parametrize(
        "line",
        [
            "git clone https://github.com/NVIDIA/apex-utils",
            "git clone https://github.com/apex/up",
            "pip install apexpy",
            "pip install -r apex-requirements.txt",
            "apex deploy --env prod",
            "echo 'apex predator'",
            "# pip install apex",
            "cd apex",
            "wasm-opt --opt-level 3 x.wasm",
            "python train.py --apexes 3",
            "pip install $(grep -v apex requirements.txt)",
            "cat install_apex.sh",
        ],
    )
    def test_other_meanings(self, line: str) -> None:
        assert found(f"{line}\n", "commands") == []

    def test_the_steps_around_an_installation(self) -> None:
        text = "git clone https://github.com/NVIDIA/apex && cd apex\ncd /opt/apex\npip install .\nrm -rf apex\n"
        text += "cd apex_data\n"
        assert [line for line, _, _ in found(text, "commands")] == [1, 2, 4]

    def test_continued_lines_point_at_the_first_that_matters(self) -> None:
        text = "RUN apt-get update && \\\n    pip install -v \\\n      apex && \\\n    echo done\n"
        assert found(text, "commands") == [(2, 5, "AMP852")]

    @pytest.mark.parametrize(
        "line",
        ["--opt-level O1", "--opt_level=O2", "--fp16_opt_level 'O1'", "--fp16-opt-level $LEVEL", "--amp-opt-level O0"],
    )
    def test_launch_options_are_notes(self, line: str) -> None:
        (finding,) = leftovers(f"python train.py {line}\n", "commands")
        assert (finding.code, finding.status, finding.column) == ("AMP853", "note", 17)

    def test_switches(self) -> None:
        assert [code for *_, code in found("python train.py --apex\npython train.py --use-apex --x\n", "commands")] == [
            "AMP853"
        ] * 2


class TestFrameworkOptions:
    @pytest.mark.parametrize(
        "option",
        [
            "--amp_backend apex",
            "--trainer.amp_backend=apex",
            "trainer.amp_level=O2",
            "++trainer.amp_backend='apex'",
            "--fp16_backend apex",
            "--half_precision_backend=apex",
            "--fp16-impl apex",
            "--fp16_opt_level O1",
        ],
    )
    def test_options_that_no_program_of_the_project_has(self, option: str) -> None:
        (finding,) = leftovers(f"python train.py {option} --seed 1\n", "commands", lambda name: False)
        assert (finding.code, finding.status, finding.line) == ("AMP855", "manual", 1)
        assert finding.column == len("python train.py ") + 1
        assert not [f for f in leftovers(f"python train.py {option}\n", "commands") if f.status == "manual"]

    @pytest.mark.parametrize("line", ["--amp_backend cpu", "--storage_backend apex", "x.amp_level=3", "--opt_level O1"])
    def test_other_options(self, line: str) -> None:
        assert all(f.status == "note" for f in leftovers(f"python train.py {line}\n", "commands", lambda name: False))


class TestProse:
    def test_commands_and_links_but_not_words(self) -> None:
        text = (
            "# Apex predators\nWe use [Apex](https://github.com/NVIDIA/apex) for speed.\n"
            "```\n# install apex\n$ git clone https://github.com/NVIDIA/apex\n>>> from apex import amp\n```\n"
            "The apex of the curve; APEX is great; import apex carefully.\n"
        )
        assert [(line, code) for line, _, code in found(text, "prose")] == [(2, "AMP854"), (5, "AMP852"), (6, "AMP854")]

    @pytest.mark.parametrize(
        ("line", "code"),
        [
            ("$ pip install apex", "AMP852"),
            ('pip install -v --global-option="--cpp_ext" ./', "AMP852"),
            ("1. `git clone https://github.com/NVIDIA/apex`", "AMP852"),
            ("Please do **not** use `pip install apex`.", "AMP854"),
            ("It is also possible to `git clone https://github.com/NVIDIA/apex` there.", "AMP854"),
        ],
    )
    def test_a_command_in_a_sentence_is_only_spoken_of(self, line: str, code: str) -> None:
        assert [c for *_, c in found(f"{line}\n", "prose")] == [code]

    def test_words_count_where_the_text_is_about_training(self) -> None:
        text = "Please install apex first.\nNVIDIA Apex is needed.\nInstall Apex-Legends.\nInstalled at the apex.\n"
        assert [line for line, *_ in found(f"{text}Runs on PyTorch.\n", "prose")] == [1, 2]
        assert found(text, "prose") == []

    def test_references_are_notes(self) -> None:
        (finding,) = leftovers("See https://nvidia.github.io/apex/amp.html\n", "prose")
        assert (finding.status, finding.review) == ("note", "look")


@pytest.mark.parametrize(
    "kind", ["requirements", "environment", "pyproject", "setup.cfg", "setup.py", "commands", "prose", "gitmodules"]
)
def test_nothing_in_nothing_nor_in_noise(kind: Kind) -> None:
    assert found("", kind) == []
    assert found("\r\n\\\n\\\n[\n=\n- \n\"'\n`", kind) == []


def test_findings_say_what_to_do() -> None:
    (finding,) = leftovers("apex==0.1\n", "requirements")
    assert isinstance(finding, Finding)
    assert finding.status == "manual"
    assert "remove it" in finding.message


class TestTorch:
    """Requirements on a torch that the migrated program does not run on."""

    @pytest.mark.parametrize(
        ("line", "pin"),
        [
            ("torch==1.5.1", "1.5.1"),
            ("torch == 1.8.0+cu111", "1.8.0"),
            ("torch==1.*", "1"),
            ("torch>=1.6,<2", "2"),
            ("torch<=2.3.1", "2.3.1"),
            ("torch<2.4", "2.4"),
            ("torch~=1.12", "1.12"),
            ("torch~=2.3.0", "2.3.0"),
            ("torch[opt]==1.13 ; python_version < '3.9'", "1.13"),
        ],
    )
    def test_held_below(self, line: str, pin: str) -> None:
        (finding,) = leftovers(f"numpy\n{line}\n", "requirements", migrated=True)
        assert (finding.line, finding.code, finding.status) == (2, "AMP856", "manual")
        assert f"holds torch at {pin}: the migrated program needs torch>=2.4" in finding.message
        assert list(leftovers(f"numpy\n{line}\n", "requirements")) == []  # nothing is migrated

    @pytest.mark.parametrize(
        "line",
        [
            "torch",
            "torch>=1.6.0",
            "torch!=1.7",
            "torch==2.4.0",
            "torch~=2.0",
            "torch<3",
            "torch<=2.6",
            "torchvision==0.6.0",
            "pytorch-lightning==1.5",
            "torch-geometric==1.7.0",
            "torchtext<0.10",
            "torch @ https://download.pytorch.org/whl/torch-1.5.whl",
            "# torch==1.5",
        ],
    )
    def test_what_a_torch_of_today_satisfies(self, line: str) -> None:
        assert list(leftovers(f"{line}\n", "requirements", migrated=True)) == []

    @pytest.mark.parametrize(
        ("text", "kind", "lines"),
        [
            (
                "dependencies:\n  - pytorch=1.5\n  - pytorch::pytorch==1.6.0\n  - pip:\n    - 'torch<2'\n",
                "environment",
                [2, 3, 5],
            ),
            ("[options]\ninstall_requires =\n    torch==1.4\n    torch>=1.4\n", "setup.cfg", [3]),
            ('[project]\ndependencies = ["torch==1.9", "numpy"]\n', "pyproject", [2]),
            ('[tool.poetry.dependencies]\ntorch = "^1.8"\n', "pyproject", [2]),
            ('[tool.poetry.dependencies]\ntorch = "1.8.1"\n', "pyproject", [2]),
            ('[tool.poetry.dependencies]\ntorch = {version = "<2.0", optional = true}\n', "pyproject", [2]),
            ('[tool.poetry.dependencies]\ntorch = ">=1.8"\ntorchvision = "0.5"\n', "pyproject", []),
            ("setup(install_requires=['torch==1.2.0'])\n", "setup.py", [1]),
        ],
    )
    def test_wherever_it_is_stated(self, text: str, kind: Kind, lines: list[int]) -> None:
        found = [f for f in leftovers(text, kind, migrated=True) if f.code == "AMP856"]
        assert [f.line for f in found] == lines

    @pytest.mark.parametrize(
        ("text", "kind", "lines"),
        [
            ("RUN pip install numpy torch==1.4.0+cu92 -f https://x/torch_stable.html\n", "commands", [1]),
            (
                "RUN apt-get update && \\\n    conda install -y \\\n    pytorch=1.6 torchvision -c pytorch\n",
                "commands",
                [3],
            ),
            ("pip3 install 'torch<2'\npip install torch torchvision\npip uninstall torch==1.4\n", "commands", [1]),
            ("# pip install torch==1.4\nconda install pytorch-nightly=1.0\npip install torch==$V\n", "commands", []),
            ("```\n$ conda install pytorch==1.2 -c pytorch\n```\n1. `pip install torch==1.7`\n", "prose", [2, 4]),
            ("We once had `pip install torch==1.7`; now PyTorch 1.9.\n", "prose", []),
            ("FROM pytorch/pytorch:1.9.0-cuda10.2-cudnn7-devel\n", "commands", [1]),
            (
                "FROM --platform=linux/amd64 pytorch/pytorch:2.3.1-cuda12 AS base\nfrom x/pytorch1.4-cuda10\n",
                "commands",
                [1, 2],
            ),
            (
                "FROM pytorch/pytorch:2.4.0-cuda12\nFROM pytorch/pytorch:2.10.0\nFROM x:pytorch-py36\nFROM base\n",
                "commands",
                [],
            ),
            ("FROM nvcr.io/nvidia/pytorch:19.10-py3\nFROM nvcr.io/nvidia/pytorch:24.07-py3\n", "commands", [1]),
            ("FROM pytorch/pytorch:1.9.0 is what we use.\n", "prose", []),
        ],
    )
    def test_commands_and_images(self, text: str, kind: Kind, lines: list[int]) -> None:
        found = [f for f in leftovers(text, kind, migrated=True) if f.code == "AMP856"]
        assert [f.line for f in found] == lines
        assert not [f for f in leftovers(text, kind) if f.code == "AMP856"]


def test_a_copy_of_apex_in_the_repository_is_installed_too() -> None:
    text = "COPY lib/apex apex\nRUN yes && \\\n  (cd apex; pip install ./) && \\\n  rm -rf apex\nRUN cd lib; pip install .\n"
    assert [(line, code) for line, _, code in found(text, "commands")] == [(1, "AMP852"), (3, "AMP852")]
