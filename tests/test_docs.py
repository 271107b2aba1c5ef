"""The documents say what the code does: their tables are parsed and compared with it."""

import ast
import importlib
import json
import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import torch
from safetensors import safe_open

from byteseam.config import RunConfig
from byteseam.config_file import load
from byteseam.data.batches import evaluation_batches
from byteseam.data.corpus import Corpus
from byteseam.data.documents import Document, Source
from byteseam.data.prepare import prepare
from byteseam.evaluation.decide import Mode
from byteseam.evaluation.segment import segment
from byteseam.inspect import Record
from byteseam.language_model import LanguageModel
from byteseam.model.pooling import segments
from byteseam.model.unet import document_positions
from byteseam.rl.baselines import leave_one_out_over_rollouts
from byteseam.rl.losses import bernoulli_log_prob, score_function_loss
from byteseam.rl.rewards import early_exit_reward
from byteseam.strategies import STRATEGIES, ScoreFunction
from byteseam.trained import Trained
from byteseam.training.loop import Listener
from byteseam.training.run import Run, read_jsonl
from byteseam.training.start import start_run
from byteseam.types import DOCUMENT_MARK, VOCABULARY, Encoded

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
every_document = pytest.mark.parametrize("path", DOCUMENTS, ids=[path.stem for path in DOCUMENTS])


@dataclass
class Table:
    """A table of a document, and where it stands."""

    heading: str
    columns: list[str]
    rows: list[list[str]]

    def names(self) -> set[str]:
        """What stands in backticks in the first column."""
        return {name for row in self.rows for name in code(row[0])}


def code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def tables(document: str) -> list[Table]:
    found: list[Table] = []
    heading, inside = "", False
    for line in (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif not inside:
            found.append(Table(heading, cells, []))
            inside = True
        elif not set(line) <= set("|- :"):
            assert len(cells) == len(found[-1].columns), line
            found[-1].rows.append(cells)
    return found


def table(document: str, heading: str, first_column: str) -> Table:
    (found,) = [each for each in tables(document) if (each.heading, each.columns[0]) == (heading, first_column)]
    return found


# All documents


@every_document
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


@every_document
def test_names_of_the_code_exist(path):
    for name in code(path.read_text(encoding="utf-8")):
        if not re.fullmatch(r"byteseam(\.\w+)+", name):
            continue
        module, rest = name, []
        while importlib.util.find_spec(module.partition(".")[0]) and not _is_module(module):
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
        found = importlib.import_module(module)
        for part in rest:
            found = getattr(found, part)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@every_document
def test_settings_exist(path):
    known = {"strategy.name"} | {f"strategy.{key}" for each in STRATEGIES.values() for key in fields_of(each)}
    for place, info in fields_of(RunConfig).items():
        known |= {f"{place}.{key}" for key in getattr(info.annotation, "__pydantic_fields__", ())}
    for name in code(path.read_text(encoding="utf-8")):
        if re.fullmatch(r"(data|model|strategy|training|evaluation)\.[a-z_0-9]+", name):
            assert name in known | {"model.safetensors"}, name


@every_document
def test_files_that_are_named_exist(path):
    for name in code(path.read_text(encoding="utf-8")):
        if re.match(r"(configs|docs|src|tests)/", name):
            assert (ROOT / name).exists(), name


def fields_of(cls) -> dict:
    return cls.__pydantic_fields__


# Conventions


@pytest.fixture(scope="module")
def row() -> dict[str, list[str]]:
    """The worked row: name -> its eight entries."""
    text = (ROOT / "docs/conventions.md").read_text(encoding="utf-8")
    block = text.split("```text worked-row\n")[1].split("```")[0]
    found = {line.split()[0]: line.split()[1:] for line in block.splitlines()}
    assert {len(entries) for entries in found.values()} == {8}
    return found


def ids(entries: list[str]) -> list[int]:
    return [DOCUMENT_MARK if entry == "M" else ord(entry.replace("_", " ")) for entry in entries]


def numbers(entries: list[str]) -> torch.Tensor:
    return torch.tensor([[float(entry) for entry in entries]])


def flags(entries: list[str]) -> list[bool]:
    return [entry == "1" for entry in entries]


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """The row as the data code makes it, of the worked row's two documents."""
    documents = [Document(name, name.encode()) for name in ("to be", "or", "held out")]
    source = Source("worked", lambda: "by hand", lambda: iter(documents), lambda: None, lambda: None)
    directory = tmp_path_factory.mktemp("worked") / "corpus"
    prepare(source, directory, validation_fraction=1e-9)
    return next(evaluation_batches(Corpus.open(directory, "train"), 8, 1))[0]


def test_the_worked_row_is_laid_out_as_batches_are(row, batch):
    assert row["position"] == list("01234567")
    assert batch.byte_ids[0].tolist() == ids(row["byte_ids"])
    assert batch.targets[0].tolist() == ids(row["targets"])
    assert batch.document_ids[0].tolist() == list(map(int, row["document_ids"]))
    assert document_positions(batch.document_ids)[0].tolist() == list(map(int, row["positions"]))
    assert batch.mask.all()


@pytest.mark.parametrize("rollout", ["", "other_"])
def test_the_worked_rows_boundaries_are_decided_and_read_as_it_says(row, batch, rollout):
    strategy = ScoreFunction()
    free, boundary = flags(row["free"]), flags(row[f"{rollout}boundary"])
    # A number of 1 is below no probability: what is a boundary all the same is forced.
    uniforms = torch.tensor(
        [[0.0 if wanted and choice else 1.0 for wanted, choice in zip(boundary, free, strict=True)]]
    )
    encoded = Encoded(torch.zeros(1, 8, 4), torch.zeros(1, 8, VOCABULARY))
    decision = strategy.decide(strategy.build(4), encoded, batch, uniforms)
    assert decision.boundary[0].tolist() == boundary
    assert decision.free[0].tolist() == free
    if not rollout:
        assert segments(decision.boundary).segment_ids[0].tolist() == list(map(int, row["segment_ids"]))


def test_the_worked_rows_numbers_follow_from_its_costs(row, batch):
    early, nll, other = (numbers(row[name]) for name in ("early_nll", "nll", "other_nll"))
    assert torch.equal(early_exit_reward(nll, early), numbers(row["reward"]))
    returns = ScoreFunction(gamma=0.5).returns(torch.stack((nll, other)), early, batch.document_ids)
    assert torch.equal(returns[0], numbers(row["return"]))
    assert torch.equal(returns[1], numbers(row["other_return"]))
    advantage = returns - leave_one_out_over_rollouts(returns)
    free = flags(row["free"])
    for place, (entry, choice) in enumerate(zip(row["advantage"], free, strict=True)):
        assert entry == "." if not choice else float(entry) == advantage[0, 0, place]
    logits = torch.zeros(2, 1, 8, requires_grad=True)
    boundary = torch.tensor([[flags(row["boundary"])], [flags(row["other_boundary"])]])
    mask = torch.tensor(free).expand(2, 1, 8)
    score_function_loss(advantage, bernoulli_log_prob(logits, boundary), mask).backward()
    signs = {1.0: "+", -1.0: "-", 0.0: "0"}
    push = [signs[each] for each in (-logits.grad[0, 0].sign()).tolist()]
    assert [each if choice else "." for each, choice in zip(push, free, strict=True)] == row["push"]


def test_rollouts_that_decide_alike_cost_alike_until_they_part(row):
    """The made-up costs do not contradict causality, nor the documents' independence."""
    for start, stop in ((0, 6), (6, 8)):
        for place in range(start, stop):
            if row["boundary"][start : place + 1] == row["other_boundary"][start : place + 1]:
                assert row["nll"][place] == row["other_nll"][place]


def test_the_table_of_defaults_is_that_of_the_code():
    paper = load(ROOT / "configs/paper-147m.toml")
    rows = table("conventions.md", "Defaults, and the paper's values", "setting").rows
    assert len(rows) > 20
    for setting, default, reference, _ in rows:
        part, key = code(setting)[0].split(".")
        for written, config in ((default, RunConfig()), (reference, paper)):
            if written != "-":
                assert tomllib.loads(f"x = {written}")["x"] == getattr(getattr(config, part), key), setting


def test_every_baseline_and_every_way_to_decide_is_explained():
    baselines = table("conventions.md", "Baselines", "`strategy.baseline`").names()
    assert baselines == set(get_args(fields_of(ScoreFunction)["baseline"].annotation))
    ways = table("conventions.md", "Three ways to decide", "`--decide`, `evaluation.decide`").names()
    assert ways == set(get_args(Mode))


def test_the_paper_is_one_line_away():
    overrides = ["--strategy.baseline", "batch", "--training.policy_learning_rate", "0.2"]
    switched = load(ROOT / "configs/laptop.toml", overrides)
    assert load(ROOT / "configs/laptop-paper.toml") == switched


# Runs, metrics and checkpoints

ALWAYS = "In every line"
LEARNS = "If the strategy learns"
ENTROPY = "If it cuts by entropy"
POLICY = "While the policy learns"
VALUE = "With the baseline `value`"
CASES: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "leave_one_out": ([], (ALWAYS, LEARNS, POLICY)),
    "micro-batches": (["training.micro_batch_rows=1"], (ALWAYS, LEARNS, POLICY)),
    "batch": (["strategy.baseline=batch"], (ALWAYS, LEARNS, POLICY)),
    "none": (["strategy.baseline=none"], (ALWAYS, LEARNS, POLICY)),
    "value": (
        ["strategy.baseline=value", "strategy.history=3", "training.optimiser=muon"],
        (ALWAYS, LEARNS, POLICY, VALUE),
    ),
    "still random": (["strategy.random_fraction=0.9"], (ALWAYS, LEARNS)),
    "uniform": (["strategy.name=uniform"], (ALWAYS,)),
    "whitespace": (["strategy.name=whitespace"], (ALWAYS,)),
    "mean": (["strategy.pool=mean"], (ALWAYS, LEARNS, POLICY)),
    "gumbel": (["strategy.name=gumbel"], (ALWAYS, LEARNS)),
    "hnet": (["strategy.name=hnet"], (ALWAYS, LEARNS)),
    "entropy": (["strategy.name=entropy"], (ALWAYS, ENTROPY)),
    "bpe": (["strategy.name=bpe", "strategy.vocabulary=260"], (ALWAYS,)),
    "flat": (["strategy.name=flat"], (ALWAYS,)),
}
every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module")
def run_of(tmp_path_factory, tiny_config) -> Callable[[str], Run]:
    """``run_of("batch")``: two steps of a case, taken when they are first asked for."""
    folder = tmp_path_factory.mktemp("documented")

    @cache
    def run_of(case: str) -> Run:
        config = tiny_config("training.total_bytes=256", "training.log_every_steps=1", *CASES[case][0])
        trainer = start_run(config, folder / case, Listener())
        trainer.train()
        return trainer.run

    return run_of


@every_case
def test_metrics_are_those_documented(run_of, case):
    lines = read_jsonl(run_of(case).metrics_path)
    assert [line["kind"] for line in lines] == ["train", "train", "evaluation"]
    documented = set().union(*(table("metrics.md", heading, "key").names() for heading in CASES[case][1]))
    for line in lines[:2]:
        assert set(line) == documented
    assert set(lines[2]) == table("metrics.md", "Lines of evaluation", "key").names()


def test_no_key_is_documented_for_nothing():
    headings = {each.heading for each in tables("metrics.md")}
    assert headings == {ALWAYS, LEARNS, ENTROPY, POLICY, VALUE, "Lines of evaluation"}


def test_loss_terms_are_those_of_the_step_whatever_its_parts(run_of):
    whole, parts = (read_jsonl(run_of(case).metrics_path)[0] for case in ("leave_one_out", "micro-batches"))
    assert whole["nll_loss"] == pytest.approx(parts["nll_loss"], rel=1e-5)
    assert whole["bits_per_byte"] == pytest.approx(parts["bits_per_byte"], rel=1e-5)


def checkpoint_of(run: Run) -> Path:
    (checkpoint,) = run.checkpoints.iterdir()
    return checkpoint


def shape_of(text: str, sizes: dict[str, int]) -> list[int]:
    """``[2 * width, width]`` with numbers for names."""
    return [int(eval(compile(ast.Expression(each), "", "eval"), sizes)) for each in ast.parse(text).body[0].value.elts]


def documented_tensors(config: RunConfig) -> dict[str, list[int]]:
    strategy = config.strategy
    model = strategy.network(config.model)
    sizes = {**vars(strategy), **vars(model)}
    when = {"always", type(strategy).name, getattr(strategy, "baseline", ""), getattr(strategy, "pool", "")}
    found = {}
    for name, shape, condition in table("checkpoint-format.md", "model.safetensors", "tensor").rows:
        if condition not in when:
            continue
        (name,) = code(name)
        for stack, layers in (("encoder", "encoder"), ("token_model", "token"), ("decoder", "decoder")):
            mlp = model.token_mlp_width if stack == "token_model" else model.byte_mlp_width
            for layer in range(getattr(model, f"{layers}_layers")):
                found[name.replace("STACK.N", f"{stack}.{layer}")] = shape_of(shape, sizes | {"MLP": mlp})
    return found


def stored_tensors(path: Path) -> dict[str, list[int]]:
    with safe_open(path, "pt") as file:
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        assert {each.get_dtype() for name, each in found.items() if name != "policy.merges"} == {"F32"}
        return {name: each.get_shape() for name, each in found.items()}


@every_case
def test_tensors_are_those_documented(run_of, case):
    run = run_of(case)
    assert stored_tensors(checkpoint_of(run) / "model.safetensors") == documented_tensors(run.config())


def test_tensors_of_several_layers_are_those_documented():
    config = load(ROOT / "configs/small.toml")
    with torch.device("meta"):
        state = LanguageModel(config.model, config.strategy).state_dict()
    assert {name: list(tensor.shape) for name, tensor in state.items()} == documented_tensors(config)


@every_case
def test_what_the_optimiser_gathers_is_documented(run_of, case):
    run = run_of(case)
    config = run.config()
    expected = {}
    without_gradient = {"policy.merges"} | ({"unet.token_norm.weight"} if case == "flat" else set())
    for name, shape in documented_tensors(config).items():
        if name in without_gradient:
            continue
        layer = re.match(r"unet\.(encoder|token_model|decoder)\.", name) and len(shape) == 2
        holder = "Muon" if layer and config.training.optimiser == "muon" else "AdamW"
        for key, form, when in table("checkpoint-format.md", "optimiser.safetensors", "tensor").rows:
            if when == holder:
                expected[code(key)[0].replace("NAME", name)] = [] if form == "[]" else shape
    assert stored_tensors(checkpoint_of(run) / "optimiser.safetensors") == expected


def test_files_and_fields_of_a_run_are_those_documented(run_of):
    run = run_of("leave_one_out")

    def documented(heading: str, column: str, which: int = 0) -> set[str]:
        found = [
            each for each in tables("checkpoint-format.md") if (each.heading, each.columns[0]) == (heading, column)
        ]
        return found[which].names()

    found = {path.name + "/" * path.is_dir() for path in run.directory.iterdir()}
    assert found == documented("A run", "entry")
    checkpoint = checkpoint_of(run)
    assert checkpoint.name == "step-00000002"
    assert {path.name for path in checkpoint.iterdir()} == documented("A checkpoint", "file")
    assert set(json.loads((checkpoint / "state.json").read_text())) == documented("state.json", "field")
    environment = json.loads((run.directory / "environment.json").read_text())
    assert set(environment) == documented("A run", "field", 0)
    line = read_jsonl(run.samples_path)[0]
    assert set(line) == documented("A run", "field", 1)
    fields = documented("A run", "field", 2)
    assert set(json.loads(line["record"])) == fields - {"base64"}
    assert set(json.loads(Record("", b"\xff", [True]).to_json())) == fields - {"text"}


# Prepared corpora


def test_files_and_fields_of_a_corpus_are_those_documented(tiny_corpus):
    fields = [each.names() for each in tables("data-format.md") if each.columns[0] == "field"]
    manifest = json.loads((tiny_corpus / "manifest.json").read_text())
    assert set(manifest) == fields[0]
    assert [set(manifest["train"][0]), set(manifest["malformed"])] == fields[1:]
    names = table("data-format.md", "Files", "file").names()
    splits = {name.replace("SPLIT-NNNNN", f"{split}-00000") for name in names for split in ("train", "validation")}
    assert {path.name for path in tiny_corpus.iterdir()} == splits


def test_every_rule_of_the_split_is_documented():
    from byteseam.data.manifest import SplitRule

    assert table("data-format.md", "The split", "`split_rule`").names() == set(get_args(SplitRule))


# Adding a strategy


def test_the_strategy_of_the_page_runs_through(tiny_toml, tmp_path, monkeypatch):
    """It is put into the table, trained, scored and asked to cut, as its page says it would be."""
    page = (ROOT / "docs/adding-a-strategy.md").read_text()
    source = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    assert len([line for line in source.splitlines() if line and not line.startswith(("from", "import"))]) <= 30
    (tmp_path / "byte_table.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(STRATEGIES, "byte_table", importlib.import_module("byte_table").ByteTable)
    config = load(
        tiny_toml, ["strategy.name=byte_table", "strategy.policy_weight=2", "training.policy_learning_rate=0.1"]
    )
    trainer = start_run(config, tmp_path / "run", Listener())
    before = trainer.model.policy.weight.detach().clone()
    evaluation = trainer.train()
    assert math.isfinite(evaluation.bits_per_byte)
    assert 0.1 < evaluation.rate < 0.6
    assert not torch.equal(trainer.model.policy.weight, before)
    trained = Trained.open(tmp_path / "run")
    record = segment(
        trained.model,
        trained.strategy,
        b"to be or not",
        name="page",
        length_bytes=32,
        decider=trained.decider("rate", None, 4.0, 0),
        precision=trained.precision,
    )
    assert record.data == b"to be or not"
    assert record.probability is not None
