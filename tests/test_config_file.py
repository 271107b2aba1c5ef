"""Run configurations: reading, overriding, writing back, and every mistake as one sentence."""

import dataclasses
import tomllib
from typing import Annotated, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from byteseam.config import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from byteseam.config_file import dump, from_table, load
from byteseam.config_values import kind_of
from byteseam.errors import UserError
from byteseam.strategies import STRATEGIES

BASE = "seed = 3\n\n[model]\nwidth = 64\nheads = 4\n\n[training]\nlearning_rate = 1e-3\n"
DEFAULT = type(RunConfig().strategy)
OTHERS = [name for name in STRATEGIES if name != DEFAULT.name]


@pytest.fixture
def read(tmp_path):
    def read(text, *overrides):
        path = tmp_path / "laptop.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path, overrides)

    return read


@pytest.fixture
def complaint(read, tmp_path):
    """The sentence that a mistake gives, with the folder taken away."""

    def complaint(text, *overrides):
        with pytest.raises(UserError) as error:
            read(text, *overrides)
        sentence = str(error.value)
        assert "\n" not in sentence
        return sentence.replace(f"{tmp_path}/", "")

    return complaint


# Reading


def test_an_empty_file_is_the_default(read):
    assert read("") == RunConfig()


def test_what_a_file_says_is_what_the_run_has(read):
    config = read(BASE)
    assert config == RunConfig(
        seed=3, model=ModelConfig(width=64, heads=4), training=TrainingConfig(learning_rate=1e-3)
    )
    assert from_table(tomllib.loads(BASE), "somewhere") == config


def test_numbers_that_mean_the_same_are_the_same(read):
    config = read("[training]\nlearning_rate = 1\n[model]\nwidth = 6.4e1\n")
    assert (config.training.learning_rate, config.model.width) == (1.0, 64)
    assert (type(config.training.learning_rate), type(config.model.width)) == (float, int)


def test_none_turns_off(read):
    assert read('[training]\nclip_gradient = "none"').training.clip_gradient is None
    assert read("", "--training.clip_gradient", "none").training.clip_gradient is None
    assert read("[training]\nmicro_batch_rows = 8", "training.micro_batch_rows=none").training.micro_batch_rows is None


def test_files_from_other_systems_are_read(read):
    assert read(b"\xef\xbb\xbfseed = 4\r\n").seed == 4


# Overrides


@pytest.mark.parametrize("words", [["--model.width", "128"], ["--model.width=128"], ["model.width=128"]])
def test_an_override_in_every_form(read, words):
    assert read(BASE, *words).model == ModelConfig(width=128, heads=4)


def test_the_last_override_counts_and_the_rest_stays(read):
    config = read(BASE, "--seed", "4", "--model.width=128", "seed=5", "--model.heads", "8")
    assert config == RunConfig(
        seed=5, model=ModelConfig(width=128, heads=8), training=TrainingConfig(learning_rate=1e-3)
    )


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("data.source=corpus.txt", "corpus.txt"),
        ("data.source='quoted'", "quoted"),
        ("data.source=2024", "2024"),
        ("data.source=true", "true"),
        ("data.source=a=b # c", "a=b # c"),
        ("data.source=", ""),
        ("data.source=3\nseed = 9", "3\nseed = 9"),
        ("training.learning_rate=.5", 0.5),
        ("training.learning_rate=5", 5.0),
        ("training.learning_rate=3e-4", 3e-4),
        ("training.batch_rows=1e2", 100),
        ("training.compile=off", "off"),
    ],
)
def test_the_value_of_an_override(read, word, value):
    table, key = word.partition("=")[0].split(".")
    found = getattr(getattr(read("", word), table), key)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("name", STRATEGIES)
def test_choosing_a_strategy(read, name):
    assert type(read(f'[strategy]\nname = "{name}"').strategy) is STRATEGIES[name]
    assert read("", f"--strategy.name={name}").strategy == STRATEGIES[name]()


@pytest.mark.parametrize("name", OTHERS)
def test_another_strategy_keeps_only_the_keys_that_all_have(read, complaint, name):
    file = dump(RunConfig()).replace("bytes_per_token = 5.0", "bytes_per_token = 4.5")
    own = {field.name for field in dataclasses.fields(STRATEGIES[name])}
    lost = {field.name for field in dataclasses.fields(DEFAULT)} - own
    # A weight of the former strategy means nothing for this one, even under the same name.
    assert read(file, "--strategy.name", name).strategy == STRATEGIES[name](bytes_per_token=4.5)
    for key in lost:
        assert f"override: unknown key strategy.{key} = " in complaint(
            file, f"strategy.name={name}", f"strategy.{key}=1"
        )


def test_what_a_token_is_made_of_is_kept_where_the_other_strategy_leaves_it_open_too(read):
    file = '[strategy]\nname = "score_function"\npool = "mean"\n'
    assert read(file, "--strategy.name=uniform").strategy.pool == "mean"
    assert not hasattr(read(file, "--strategy.name=gumbel").strategy, "pool")


def test_a_typo_is_not_dropped_with_the_former_strategys_keys(complaint):
    sentence = complaint("[strategy]\nnonsense = 1", f"--strategy.name={OTHERS[0]}")
    assert sentence.startswith("laptop.toml: unknown key strategy.nonsense = 1; ")


# Writing


def plain_values(annotation):
    """Values of a field's type, most of them wrong for its range, all of them right for TOML."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(plain_values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(plain_values, arguments))
    if arguments:
        return st.one_of(*map(plain_values, arguments))
    simple = {
        int: st.integers(1, 2**70),
        float: st.floats(1e-300, 1e300, allow_nan=False),
        str: st.text(st.characters(exclude_categories=["Cs"])),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return simple[annotation]


def test_the_default_survives_writing_and_reading():
    assert from_table(tomllib.loads(dump(RunConfig())), "x") == RunConfig()


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_survives_and_names_itself_first(name):
    config = RunConfig(strategy=STRATEGIES[name]())
    text = dump(config)
    assert f'\n\n[strategy]\nname = "{name}"\n' in text
    assert from_table(tomllib.loads(text), "x") == config


@given(st.data())
def test_writing_and_reading_is_the_identity(data):
    def some(cls):
        fields = cls.__pydantic_fields__
        chosen = data.draw(st.sets(st.sampled_from(sorted(fields)))) if fields else ()
        values = {key: data.draw(plain_values(fields[key].annotation), label=key) for key in sorted(chosen)}
        while True:
            try:
                return cls(**values)
            except ValidationError as error:  # out of range: without that key, then
                place = error.errors()[0]["loc"]
                values.pop(place[0] if place else max(values))

    config = RunConfig(
        seed=data.draw(st.integers(0, 2**64)),
        data=some(DataConfig),
        model=some(ModelConfig),
        strategy=some(STRATEGIES[data.draw(st.sampled_from(sorted(STRATEGIES)))]),
        training=some(TrainingConfig),
        evaluation=some(EvaluationConfig),
    )
    again = from_table(tomllib.loads(dump(config)), "x")
    assert again == config
    assert repr(again) == repr(config)  # 1 and 1.0 are equal


def test_tables_stand_in_order_and_none_is_left_out():
    text = dump(RunConfig(training=TrainingConfig(clip_gradient=None)))
    assert text.startswith("seed = 0\n\n[data]\n")
    assert list(tomllib.loads(text)) == ["seed", "data", "model", "strategy", "training", "evaluation"]
    assert "micro_batch_rows" not in text
    assert 'clip_gradient = "none"' in text


# Mistakes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed = x", "laptop.toml: not valid TOML: invalid value (at line 1, column 8); mend it there"),
        (
            "seed = 1\nseed = 2",
            "laptop.toml: not valid TOML: cannot overwrite a value (at end of document); mend it there",
        ),
        (b"\xff", "laptop.toml: not UTF-8 at byte 0; save it as UTF-8"),
        ("x = " + "[" * 9999, "laptop.toml: not valid TOML: a number too long or a list too deep; mend it"),
        ("[modle]", "laptop.toml: unknown table [modle]; did you mean [model]?"),
        ("[zzz]", "laptop.toml: unknown table [zzz]; the tables are data, model, strategy, training, evaluation"),
        ("model = 3", "laptop.toml: model is a table, got 3; set its keys below [model]"),
        ("[seed]\nx = 1", "laptop.toml: seed must be a whole number of at least 0, got a table"),
        ("sede = 3", "laptop.toml: unknown key sede = 3; did you mean seed?"),
        ("width = 3", "laptop.toml: unknown key width = 3; did you mean model.width?"),
        ("[model]\nwidht = 3", "laptop.toml: unknown key model.widht = 3; did you mean model.width?"),
        (
            "[model]\nlearning_rate = 3",
            "laptop.toml: unknown key model.learning_rate = 3; did you mean training.learning_rate?",
        ),
        ("[evaluation]\nzzz = 3", "laptop.toml: unknown key evaluation.zzz = 3; [evaluation] has decide, max_bytes"),
        ('[model]\nwidth = "64"', 'laptop.toml: model.width must be a whole number of at least 8, got "64"'),
        ("[model]\nwidth = true", "laptop.toml: model.width must be a whole number of at least 8, got true"),
        ("[model]\nwidth = 64.5", "laptop.toml: model.width must be a whole number of at least 8, got 64.5"),
        ("[model]\nwidth = 4", "laptop.toml: model.width must be a whole number of at least 8, got 4"),
        ("[model]\nwidth = [1]", "laptop.toml: model.width must be a whole number of at least 8, got [1]"),
        (
            "[model]\nwidth = 1999-12-31",
            "laptop.toml: model.width must be a whole number of at least 8, got 1999-12-31",
        ),
        ("[training]\nlearning_rate = 0", "laptop.toml: training.learning_rate must be a finite number above 0, got 0"),
        (
            "[training]\nlearning_rate = nan",
            "laptop.toml: training.learning_rate must be a finite number above 0, got nan",
        ),
        (
            "[training]\nbeta1 = 1.5",
            "laptop.toml: training.beta1 must be a finite number of at least 0 and below 1, got 1.5",
        ),
        (
            "[training]\nclip_gradient = -1",
            'laptop.toml: training.clip_gradient must be a finite number above 0 or "none", got -1',
        ),
        (
            '[data]\nlayout = "paked"',
            'laptop.toml: data.layout must be one of "packed", "prefix", got "paked"; did you mean "packed"?',
        ),
        ("[data]\nsource = 3", "laptop.toml: data.source must be text, got 3"),
        (
            "[model]\nwidth = 66",
            "laptop.toml: [model] width = 66 does not split into heads = 4 of an even width each (rotary positions "
            "turn pairs); make width a multiple of 8",
        ),
        (
            "[training]\nmicro_batch_rows = 5",
            "laptop.toml: [training] batch_rows = 32 does not split into micro-batches of micro_batch_rows = 5; make "
            "one a multiple of the other",
        ),
    ],
)
def test_a_mistake_in_the_file(complaint, text, sentence):
    assert complaint(text) == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model.width"], "override: --model.width has no value; write --model.width VALUE"),
        (["--model.width", "--seed", "3"], "override: --model.width has no value; write --model.width VALUE"),
        (["nonsense"], 'override: "nonsense" sets nothing; write --TABLE.KEY VALUE, such as --model.width 256'),
        (["--model=3"], 'override: model is a table, got "3"; set one of its keys, --model.KEY VALUE'),
        (["--model.width=abc"], 'override: model.width must be a whole number of at least 8, got "abc"'),
        (["--model.width=none"], 'override: model.width must be a whole number of at least 8, got "none"'),
        (["--model.width=inf"], "override: model.width must be a whole number of at least 8, got inf"),
        (["--modle.width=64"], "override: unknown key modle.width = 64; did you mean model.width?"),
        (["--model.width.x=64"], "override: unknown key model.width.x = 64; "),
        (["data.source=\udcff"], 'override: data.source must be text, got "\udcff"'),
        (["--model.width=66"], "laptop.toml with overrides: [model] width = 66 does not split into heads = 4 "),
    ],
)
def test_a_mistake_in_an_override(complaint, words, sentence):
    assert complaint(BASE, *words).startswith(sentence)


def test_an_unknown_strategy_gets_the_nearest_name(complaint):
    for sentence in (
        complaint(f'[strategy]\nname = "{DEFAULT.name}x"').replace("laptop.toml", "FROM"),
        complaint("", f"--strategy.name={DEFAULT.name}x").replace("override", "FROM"),
    ):
        assert sentence.startswith(f'FROM: strategy.name must be one of "{next(iter(STRATEGIES))}"')
        assert sentence.endswith(f'got "{DEFAULT.name}x"; did you mean "{DEFAULT.name}"?')
    assert "strategy.name must be one of" in complaint("[strategy]\nname = 3")


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "laptop.toml").write_text("")
    for path, sentence in (
        (tmp_path / "latop.toml", f"{tmp_path}/latop.toml: no such file; did you mean {tmp_path}/laptop.toml?"),
        (tmp_path / "none" / "x", f"{tmp_path}/none/x: no such file; give a TOML file"),
        (tmp_path, f"{tmp_path}: is a directory; give a TOML file, such as {tmp_path}/config.toml"),
        (
            tmp_path / "laptop.toml" / "x",
            f"{tmp_path}/laptop.toml/x: cannot be read (Not a directory); give a TOML file that can",
        ),
    ):
        with pytest.raises(UserError) as error:
            load(path)
        assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("annotation", "description", "good", "bad"),
    [
        (
            float | tuple[tuple[float, float], ...],
            "a finite number or a list, each item a list of 2, each item a finite number",
            [1, 0.5, [[0, 1.5]], []],
            [[1], [[1, 2, 3]], [["a", 1]], [[True, 1]], "x", None, float("nan")],
        ),
        (list[str] | None, 'a list, each item text or "none"', [["a"], [], None], ["a", [1], {}]),
        (
            Annotated[int, Field(gt=1, le=9)] | None,
            'a whole number above 1 and at most 9 or "none"',
            [1, None, 2.0],  # bounds are left to pydantic
            [1.5, "1", False],
        ),
        (Literal[1, "one"], 'one of 1, "one"', [1, "one"], [True, 1.0, "two"]),
        (bool, "true or false", [True], [1, "true"]),
        (complex, "something else", ["anything", 3], []),  # pydantic alone judges
    ],
)
def test_what_a_field_of_each_kind_takes(annotation, description, good, bad):
    kind = kind_of(FieldInfo.from_annotation(annotation))
    assert kind.description() == description
    assert [value for value in good if not kind.accepts(value)] == []
    assert [value for value in bad if kind.accepts(value)] == []


def test_an_origin_that_is_no_file_is_named():
    with pytest.raises(UserError, match=r"^checkpoint 3: unknown key sede = 1; did you mean seed"):
        from_table({"sede": 1}, "checkpoint 3")


def test_a_baseline_over_rows_needs_rows(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text('[strategy]\nname = "score_function"\nbaseline = "batch"\n[training]\nbatch_rows = 1\n')
    with pytest.raises(UserError, match=r"training\.batch_rows = 1 .* make it at least 2") as refused:
        load(path)
    assert "\n" not in str(refused.value)


def test_a_run_has_a_token_model(complaint):
    assert "model.token_layers = 0 leaves no token model; make it at least 1" in complaint("[model]\ntoken_layers = 0")
