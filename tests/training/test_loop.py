"""The loop: what stops it, what does not, and what each of its settings does."""

import json
import signal
import threading

import pytest
import torch

from byteseam.config import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from byteseam.errors import UserError
from byteseam.evaluation.decide import Decider
from byteseam.language_model import LanguageModel
from byteseam.training import loop
from byteseam.training.checkpoint import checkpoints_of, load_model, load_optimiser
from byteseam.training.loop import Listener, due, evaluate_corpus, finite, stop_requests
from byteseam.training.objective import LOSS_TERMS
from byteseam.training.optimiser import build_optimiser
from byteseam.training.run import read_jsonl
from byteseam.training.start import resume_run, start_run


@pytest.fixture
def trainer_of(tmp_path, tiny_config):
    """``trainer_of("training.batch_rows=2", listener=...)``: at its start, in a run of its own."""
    numbers = iter(range(99))

    def make(*overrides, listener=None):
        return start_run(tiny_config(*overrides), tmp_path / f"run{next(numbers)}", listener or Listener())

    return make


class At(Listener):
    """Does something after a step."""

    def __init__(self, step, action):
        self.when, self.action = step, action

    def step(self, state, summary):
        if state.step == self.when:
            self.action()


def values(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


# Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_with_a_checkpoint(trainer_of, number):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    trainer = trainer_of(listener=At(2, lambda: signal.raise_signal(number)))
    assert trainer.train() is None
    assert trainer.stopped_by == number
    assert [path.name for path in checkpoints_of(trainer.run.checkpoints)] == ["step-00000002"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_second_signal_stops_at_once(trainer_of):
    def twice():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)

    trainer = trainer_of(listener=At(2, twice))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert not list(trainer.run.checkpoints.iterdir())


def test_a_signal_at_the_last_step_changes_nothing(trainer_of):
    trainer = trainer_of("training.total_bytes=256", listener=At(2, lambda: signal.raise_signal(signal.SIGINT)))
    assert trainer.train() is not None
    assert trainer.stopped_by is None


def test_beside_the_main_thread_signals_are_left_alone():
    handler, seen = signal.getsignal(signal.SIGINT), []

    def ask():
        with stop_requests() as asked:
            seen.append((asked(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == [(None, handler)]


# Whoever watches


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("closed file"), SystemExit(1)])
@pytest.mark.parametrize("event", ["step", "sample", "evaluated", "notice"])
def test_a_listener_that_fails_is_left_behind(trainer_of, event, error):
    calls = []

    def fail(*news):
        calls.append(news)
        raise error

    listener = Listener()
    setattr(listener, event, fail)
    # One byte a token is far off the rate: there is something to notice.
    trainer = trainer_of(
        "training.total_bytes=512", "training.evaluate_every_bytes=128", "strategy.logit_cap=0.1", listener=listener
    )
    with pytest.warns(RuntimeWarning, match=f"training goes on unwatched: {type(error).__name__}") as warned:
        assert trainer.train() is not None
    assert len(calls) == len(warned) == 1
    assert trainer.state.step == 4


# What is not finite


def sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith("lower training.learning_rate or training.clip_gradient and train again")
    return text


def loadable(trainer, checkpoint):
    """The model of a checkpoint, from its files."""
    model = LanguageModel(trainer.config.model, trainer.config.strategy)
    load_model(checkpoint, model)
    load_optimiser(checkpoint, model, build_optimiser(model, trainer.config.training))
    return model


@pytest.mark.parametrize("term", LOSS_TERMS)
def test_a_loss_that_breaks_stops_the_run(trainer_of, monkeypatch, term):
    """At the third step; all that was learned in two is kept, and nothing of the third is."""
    whole, before = loop.accumulate_gradients, []

    def broken(model, *arguments):
        metrics = whole(model, *arguments)
        before.append(values(model).clone())
        if len(before) == 3:
            metrics[term] = metrics[term] * float("nan")
        return metrics

    monkeypatch.setattr(loop, "accumulate_gradients", broken)
    trainer = trainer_of("training.log_every_steps=100")
    with pytest.raises(UserError) as error:
        trainer.train()
    (checkpoint,) = checkpoints_of(trainer.run.checkpoints)
    assert checkpoint.name == "step-00000002"
    assert f"{term} is not finite at step 3; the last good checkpoint is {checkpoint};" in sentence(error)
    assert torch.equal(values(trainer.model), before[2])
    assert torch.equal(values(loadable(trainer, checkpoint)), before[2])
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    monkeypatch.setattr(loop, "accumulate_gradients", whole)
    resumed = resume_run(trainer.run.directory, Listener())
    assert (resumed.state.step, resumed.state.window["nll_loss"][1]) == (2, 2.0)


@pytest.mark.parametrize(
    ("part", "term"), [("unet.decoder", "gradient_norm"), ("policy.policy", "policy_gradient_norm")]
)
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_gradient_that_breaks_stops_the_run(trainer_of, part, term, number):
    trainer = trainer_of()
    parameter = next(iter(trainer.model.get_submodule(part).parameters()))
    parameter.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([0]), number))
    before = values(trainer.model).clone()
    with pytest.raises(UserError, match=f"^{term} is not finite at step 1; .*step-00000000;") as error:
        trainer.train()
    sentence(error)
    assert torch.equal(values(trainer.model), before)
    assert torch.equal(values(loadable(trainer, trainer.run.checkpoints / "step-00000000")), before)
    assert resume_run(trainer.run.directory, Listener()).state.step == 0


def plant(trainer):
    def action():
        with torch.no_grad():
            trainer.model.unet.decoder[0].value.weight[0, 0] = float("nan")

    return action


def test_a_broken_parameter_is_never_saved(trainer_of):
    """Planted after step 6, when the checkpoint of step 5 is the last good one."""
    trainer = trainer_of("training.keep_checkpoints=1")
    trainer.listener = At(6, plant(trainer))
    with pytest.raises(UserError, match=r"^nll_loss is not finite at step 7; .*step-00000005;") as error:
        trainer.train()
    sentence(error)
    assert [path.name for path in checkpoints_of(trainer.run.checkpoints)] == ["step-00000005"]
    assert bool(values(loadable(trainer, trainer.run.checkpoints / "step-00000005")).isfinite().all())


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (4, "the loss on 'held-out passage' is not finite"),
        (3, "unet.decoder.0.value.weight is not finite after step 3"),
        (1, "nll_loss is not finite at step 2"),
        (2, "the loss on held-out text is not finite"),
    ],
)
def test_a_broken_parameter_shows_wherever_it_is_met_first(trainer_of, step, says):
    due_at = {"sample": 4, "evaluate": 2, "checkpoint": 3}
    trainer = trainer_of(*(f"training.{name}_every_bytes={at * 128}" for name, at in due_at.items()))
    trainer.listener = At(step, plant(trainer))
    with pytest.raises(UserError, match=says) as error:
        trainer.train()
    good = [path.name for path in checkpoints_of(trainer.run.checkpoints)]
    assert good == (["step-00000003"] if step == 4 else [])
    assert ("no good checkpoint yet" in sentence(error)) == (not good)


@pytest.mark.parametrize("steps", [1, 3])
def test_an_absurd_learning_rate_is_one_sentence(trainer_of, steps):
    trainer = trainer_of(
        "training.learning_rate=1e30",
        "training.warmup_bytes=0",
        "training.total_bytes=1e3",
        f"training.sample_every_bytes={steps * 128}",
    )
    with pytest.raises(UserError, match="not finite") as error:
        trainer.train()
    sentence(error)


# Settings (contract 12: every one changes what it names)


def test_steps_are_what_the_budget_pays_for(trainer_of):
    assert trainer_of("training.total_bytes=1280").total_steps == 10
    assert trainer_of("training.total_bytes=1281").total_steps == 11
    assert trainer_of("training.total_bytes=1").total_steps == 1
    assert trainer_of("training.total_bytes=1280", "training.batch_rows=8").total_steps == 5
    assert trainer_of("training.total_bytes=1280", "training.length_bytes=16").total_steps == 20


def test_what_is_due_when(trainer_of):
    seen = []

    class Watch(Listener):
        def sample(self, state, record):
            seen.append(("sample", state.step))

        def evaluated(self, state, evaluation):
            seen.append(("evaluated", state.step, evaluation.bytes_scored))

    trainer = trainer_of(
        "training.total_bytes=768",  # 6 steps
        "training.sample_every_bytes=300",  # after 3 and 5 steps, at 384 and 640 bytes
        "training.evaluate_every_bytes=512",
        "training.checkpoint_every_bytes=256",
        "training.keep_checkpoints=3",
        "training.log_every_steps=4",
        "evaluation.max_bytes=77",
        listener=Watch(),
    )
    trainer.train()
    whole = trainer.validation.total_bytes
    assert seen == [("sample", 0), ("sample", 3), ("evaluated", 4, 77), ("sample", 5), ("evaluated", 6, whole)]
    assert [int(path.name[5:]) for path in checkpoints_of(trainer.run.checkpoints)] == [2, 4, 6]
    lines = read_jsonl(trainer.run.metrics_path)
    assert [(line["kind"], line["step"]) for line in lines] == [("train", 4), ("evaluation", 4), ("evaluation", 6)]
    assert [line["step"] for line in read_jsonl(trainer.run.samples_path)] == [0, 3, 5]


def test_due_is_once_a_multiple():
    passed = [step for step in range(1, 11) if due(step * 128, 128, 300)]
    assert passed == [3, 5, 8, 10]
    assert all(due(step * 128, 128, 1) for step in range(1, 5))
    assert not any(due(step * 128, 128, 1e9) for step in range(1, 5))


def test_a_line_of_metrics_averages_since_the_last_one(trainer_of):
    def lines(every):
        trainer = trainer_of("training.total_bytes=512", f"training.log_every_steps={every}")
        trainer.train()
        return [line for line in read_jsonl(trainer.run.metrics_path) if line["kind"] == "train"]

    single, double = lines(1), lines(2)
    for name in ("nll_loss", "rate_loss", "gradient_norm", "policy_gradient_norm"):
        assert double[1][name] == pytest.approx((single[2][name] + single[3][name]) / 2)
    assert double[1]["learning_rate"] == single[3]["learning_rate"]
    assert [line["bytes_seen"] for line in double] == [256, 512]


ONE_STEP = ("training.total_bytes=1e6", "training.warmup_bytes=0")
CHANGES = {
    ModelConfig: "width=24 heads=1 encoder_layers=2 token_layers=2 decoder_layers=2 byte_mlp_width=8 token_mlp_width=8 "
    "window=2 rotary_base=100.0",
    TrainingConfig: "length_bytes=24 batch_rows=2 total_bytes=256 warmup_bytes=1e5 optimiser=muon learning_rate=1e-4 "
    "policy_learning_rate=1.0 policy_epsilon=1.0 weight_decay=30.0 beta1=0.5 beta2=0.5 clip_gradient=1e-9 "
    "clip_policy_gradient=1e-9 early_exit_weight=0.7 precision=bf16",
    DataConfig: "layout=prefix",
    RunConfig: "seed=1",
}
TESTED_ELSEWHERE = {
    TrainingConfig: "micro_batch_rows compile threads evaluate_every_bytes sample_every_bytes checkpoint_every_bytes "
    "keep_checkpoints log_every_steps",
    DataConfig: "source text_field hf_split validation_fraction",
    RunConfig: "data model strategy training evaluation",
    EvaluationConfig: "max_bytes decide",
}
TABLES = {ModelConfig: "model.", TrainingConfig: "training.", DataConfig: "data.", RunConfig: ""}


def two_steps(trainer):
    window = loop.Window()
    trainer.take_step(window)
    trainer.take_step(window)
    return values(trainer.model)


@pytest.fixture(scope="module")
def plain(tiny_config, tmp_path_factory):
    """Parameters after two steps."""
    return two_steps(start_run(tiny_config(*ONE_STEP), tmp_path_factory.mktemp("plain") / "run", Listener()))


@pytest.mark.parametrize(
    "change", [TABLES[part] + change for part, changes in CHANGES.items() for change in changes.split()]
)
def test_every_setting_changes_what_is_learned(trainer_of, plain, change):
    learned = two_steps(trainer_of(*ONE_STEP, change))
    assert learned.shape != plain.shape or not torch.equal(learned, plain)


@pytest.mark.parametrize("part", [*CHANGES, EvaluationConfig])
def test_no_setting_is_forgotten_here(part):
    tested = {word.partition("=")[0] for table in (CHANGES, TESTED_ELSEWHERE) for word in table.get(part, "").split()}
    assert tested == set(part.__dataclass_fields__)


# Evaluation


def test_the_way_to_decide_reaches_the_evaluation(trainer_of, tiny_config):
    trainer = trainer_of()
    model, corpus = trainer.model, trainer.validation
    with torch.no_grad():
        model.policy.policy.linear.weight.normal_(std=20.0)

    def score(decide, decider=None):
        config = tiny_config(f"evaluation.decide={decide}", "evaluation.max_bytes=1e6")
        return evaluate_corpus(model, config, config.strategy.at(1.0), corpus, trainer.precision, None, decider)

    sample, threshold, rate = (score(decide) for decide in ("sample", "threshold", "rate"))
    assert rate.rate == pytest.approx(1 / 3, abs=0.03)
    assert len({sample.rate, threshold.rate, rate.rate}) == 3
    assert score("sample", Decider("threshold")).rate == threshold.rate
    assert score("sample", Decider("sample", seed=1)).rate != sample.rate


def test_numbers_that_json_lacks_are_left_out():
    assert finite({"a": float("nan"), "b": float("inf"), "c": 1.0, "d": None, "e": "x"}) == {
        "c": 1.0,
        "d": None,
        "e": "x",
    }


def test_every_line_is_plain_json(tiny_run):
    def refuse(constant):
        raise AssertionError(constant)

    for name in ("metrics.jsonl", "samples.jsonl"):
        for line in (tiny_run / name).read_text().splitlines():
            assert isinstance(json.loads(line, parse_constant=refuse), dict)
