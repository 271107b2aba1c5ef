"""Begin a run, or go on with one."""

import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from byteseam.config import RunConfig
from byteseam.data.batches import Batches
from byteseam.data.cache import resolve
from byteseam.data.corpus import Corpus
from byteseam.data.documents import Progress
from byteseam.data.recipes import RECIPES
from byteseam.errors import UserError
from byteseam.language_model import LanguageModel
from byteseam.training.checkpoint import State, checkpoints_of, load_model, load_optimiser, read_state
from byteseam.training.compilation import compile_layers, compiles
from byteseam.training.environment import describe_environment
from byteseam.training.loop import Listener, Trainer
from byteseam.training.optimiser import build_optimiser
from byteseam.training.precision import Precision, choose_precision
from byteseam.training.run import create_run, drop_after, open_run, refuse_existing

PASSAGE_BYTES = 480


def default_device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def start_run(
    config: RunConfig, directory: Path, listener: Listener, data: Path | None = None, progress: Progress | None = None
) -> Trainer:
    """A new run, its directory made, its parameters drawn from the seed.

    Args:
        data: the prepared corpus, where it was resolved already.

    Raises:
        UserError: if the directory exists, or the data cannot be had.
    """
    refuse_existing(directory)  # said before the data is prepared, which can take long
    config = portable(config)
    config = replace(config, strategy=config.strategy.settled(config.model, config.training.length_bytes))
    precision = set_up(config)
    corpus_directory = data or resolve(config.data, progress=progress)
    validation = Corpus.open(corpus_directory, "validation")
    batches = open_batches(config, corpus_directory)
    summary = batches.corpus.manifest.summary()
    passage = choose_passage(validation)
    model = build_model(config, precision)
    fit_strategy(config, model, batches.corpus, listener)
    optimiser = build_optimiser(model, config.training)
    run = create_run(directory, config, describe_environment(precision, summary), passage)
    return Trainer(config, run, model, optimiser, precision, batches, validation, passage, State(), listener)


def resume_run(
    directory: Path, listener: Listener, data: Path | None = None, progress: Progress | None = None
) -> Trainer:
    """Go on from a run's newest checkpoint, or from its start if a kill came before the first one.

    Raises:
        UserError: if it is no run, the checkpoint is damaged, or the corpus is not the one it was trained on.
    """
    run = open_run(directory)
    checkpoint = next(reversed(checkpoints_of(run.checkpoints)), None)
    state = State() if checkpoint is None else read_state(checkpoint)
    config = run.config()
    passage = read_part(run.passage_path)
    precision = set_up(config)
    corpus_directory = data or resolve(config.data, progress=progress)
    validation = Corpus.open(corpus_directory, "validation")
    batches = open_batches(config, corpus_directory)
    check_corpus(directory, batches.corpus)
    model = build_model(config, precision)
    optimiser = build_optimiser(model, config.training)
    if checkpoint is None:
        fit_strategy(config, model, batches.corpus, listener)
    else:
        load_model(checkpoint, model)
        load_optimiser(checkpoint, model, optimiser)
    drop_after(run.metrics_path, state.step)
    drop_after(run.samples_path, state.step if state.step else -1)
    return Trainer(config, run, model, optimiser, precision, batches, validation, passage, state, listener)


def set_up(config: RunConfig) -> Precision:
    """Threads and arithmetic."""
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    return choose_precision(config.training.precision, default_device())


def portable(config: RunConfig) -> RunConfig:
    """The configuration with a source that is found from anywhere: a path is made absolute."""
    source = config.data.source
    path = Path(source).expanduser()
    if source in ("", "-", *RECIPES) or source.startswith("hf:") or path.is_absolute():
        return config
    if path.exists() or set("/*?[") & set(source):
        return replace(config, data=replace(config.data, source=str(Path.cwd() / path)))
    return config  # a mistyped name, which is best refused as it was written


def open_batches(config: RunConfig, corpus_directory: Path) -> Batches:
    """The training split as batches."""
    corpus = Corpus.open(corpus_directory, "train")
    return Batches(corpus, length_bytes=config.training.length_bytes, layout=config.data.layout, seed=config.seed)


def build_model(config: RunConfig, precision: Precision, kind: type[LanguageModel] = LanguageModel) -> LanguageModel:
    """A model with parameters drawn from the seed, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed % 2**63)
        model = kind(config.model, config.strategy)
    model.to(precision.device)
    if compiles(config.training.compile, precision.device, config.training.total_bytes):
        compile_layers(model)
    return model


def fit_strategy(config: RunConfig, model: LanguageModel, corpus: Corpus, listener: Listener) -> None:
    """Let the strategy learn what it learns by counting, before the first step."""
    if wanted := config.strategy.fit_bytes:
        name = type(config.strategy).name
        listener.notice(f"{name} first learns from the training text by counting, which can take a minute")
        config.strategy.fit(model.policy, documents_for_fitting(corpus, wanted))


def documents_for_fitting(corpus: Corpus, wanted_bytes: int) -> list[bytes]:
    """Documents spread over the corpus, about so many bytes in all and none of them with more; always the same."""
    stride = max(1, corpus.total_bytes // wanted_bytes)
    return [corpus.document(number)[:wanted_bytes].tobytes() for number in range(0, len(corpus), stride)]


def choose_passage(validation: Corpus) -> bytes:
    """A few lines from the middle of the longest held-out document, starting at a line where there is one."""
    sizes = validation.byte_starts[1:] - validation.byte_starts[:-1]
    document = validation.document(int(sizes.argmax())).tobytes()
    middle = max(0, (len(document) - PASSAGE_BYTES) // 2)
    line = document.find(b"\n", middle, middle + PASSAGE_BYTES)
    start = line + 1 if line >= 0 and line + 1 + PASSAGE_BYTES <= len(document) else middle
    return document[start : start + PASSAGE_BYTES]


def check_corpus(directory: Path, corpus: Corpus) -> None:
    """Refuse to go on with other data: the order of batches would not be the run's."""
    path = directory / "environment.json"
    try:
        known = json.loads(read_part(path)).get("corpus", {}).get("fingerprint")
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged; restore it, or start a new run") from error
    if known is not None and known != corpus.manifest.fingerprint:
        raise UserError(
            f"the corpus at {corpus.directory} is not the one that {directory} was trained on "
            f"(fingerprint {corpus.manifest.fingerprint} instead of {known}); restore it, or start a new run"
        )


def read_part(path: Path) -> bytes:
    """A file that every run has.

    Raises:
        UserError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); restore it, or start a new run") from error


def wall_clock_name(config: RunConfig) -> str:
    """A fresh directory name for a run: strategy and time."""
    return f"{type(config.strategy).name}-{time.strftime('%Y%m%d-%H%M%S')}"
