"""The run configuration: frozen dataclasses, one a TOML table. ``None`` means off, never -1.

Reading and writing files lives in `byteseam.config_file`; strategies bring their own table (`byteseam.strategies`).
"""

from dataclasses import field
from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from byteseam.strategies import ScoreFunction, Strategy

_EXACT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class DataConfig:
    """``[data]``: what is read."""

    source: str = "gutenberg"
    """A named corpus, a prepared directory, a file, a folder, a glob, or ``hf:NAME``."""
    text_field: str = "text"
    """The column that holds the text in jsonl, parquet and Hugging Face datasets."""
    hf_split: str = "train"
    """The split of a Hugging Face dataset."""
    validation_fraction: float = Field(default=0.05, gt=0, lt=1)
    """Share of the documents held out, chosen by a hash of their content."""
    layout: Literal["packed", "prefix"] = "packed"
    """``packed``: rows are cut from all documents end to end; ``prefix``: one row a document, its first bytes (the
    paper's way)."""


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class ModelConfig:
    """``[model]``: the autoregressive U-Net."""

    width: int = Field(default=128, ge=8)
    heads: int = Field(default=4, ge=1)
    encoder_layers: int = Field(default=2, ge=1)
    token_layers: int = Field(default=4, ge=0)
    """At least 1 in a run's configuration; none in the network of the strategy ``flat``."""
    decoder_layers: int = Field(default=2, ge=1)
    byte_mlp_width: int = Field(default=128, ge=1)
    token_mlp_width: int = Field(default=512, ge=1)
    window: int = Field(default=64, ge=1)
    """Bytes that a position of the byte-level layers sees, itself included."""
    rotary_base: float = Field(default=10_000.0, gt=1)

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width // self.heads % 2:
            raise ValueError(
                f"width = {self.width} does not split into heads = {self.heads} of an even width each (rotary "
                f"positions turn pairs); make width a multiple of {2 * self.heads}"
            )


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class TrainingConfig:
    """``[training]``: how it learns."""

    length_bytes: int = Field(default=256, ge=2)
    """Positions of a row."""
    batch_rows: int = Field(default=32, ge=1)
    """Rows of one optimiser step, over all micro-batches and ranks."""
    micro_batch_rows: int | None = Field(default=None, ge=1)
    """Rows of one forward pass; ``None``: all of them at once."""
    total_bytes: float = Field(default=30e6, gt=0)
    """How much to train on: positions, targets that count or not."""
    warmup_bytes: float = Field(default=1e6, ge=0)
    """The learning rate rises linearly over these bytes, then falls along a cosine to zero."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """``muon``: Muon for the matrices of the layers, AdamW for the rest."""
    learning_rate: float = Field(default=3e-3, gt=0)
    policy_learning_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate of the boundary policy and what belongs to it; ``None``: the same."""
    policy_epsilon: float = Field(default=1e-8, gt=0)
    """AdamW's epsilon for the policy. Far below the size of a weight's gradient, every weight moves alike, however
    little it gains; far above it, steps are proportional to the gradient, and what pays most moves first."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled, on matrices only."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.98, ge=0, lt=1)
    clip_gradient: float | None = Field(default=1.0, gt=0)
    """Largest norm of the model's gradient; ``None``: never clipped."""
    clip_policy_gradient: float | None = Field(default=1.0, gt=0)
    """Largest norm of the policy's gradient, clipped apart from the model's."""
    early_exit_weight: float = Field(default=0.1, ge=0)
    """Weight of the early-exit head's own next-byte loss."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto``: bf16 autocast where the processor has matrix units for it."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile; ``auto``: where a compiler is at hand and the run is long enough to earn it back."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads; ``None``: PyTorch's choice."""
    evaluate_every_bytes: float = Field(default=5e6, gt=0)
    sample_every_bytes: float = Field(default=1e6, gt=0)
    checkpoint_every_bytes: float = Field(default=5e6, gt=0)
    keep_checkpoints: int = Field(default=2, ge=1)
    log_every_steps: int = Field(default=10, ge=1)

    def __post_init__(self) -> None:
        if self.micro_batch_rows is not None and self.batch_rows % self.micro_batch_rows:
            raise ValueError(
                f"batch_rows = {self.batch_rows} does not split into micro-batches of micro_batch_rows = "
                f"{self.micro_batch_rows}; make one a multiple of the other"
            )


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class EvaluationConfig:
    """``[evaluation]``: what is measured while training and by ``byteseam eval``."""

    max_bytes: float = Field(default=200e3, gt=0)
    """Held-out bytes read by an evaluation during training."""
    decide: Literal["sample", "threshold", "rate"] = "sample"
    """How boundaries are decided (`docs/conventions.md`)."""


@dataclass(frozen=True, kw_only=True, config=_EXACT)
class RunConfig:
    """A whole run."""

    seed: int = Field(default=0, ge=0)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    strategy: Strategy = field(default_factory=ScoreFunction)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        if self.model.token_layers < 1:
            raise ValueError(
                'model.token_layers = 0 leaves no token model; make it at least 1, or take strategy.name = "flat", '
                "which has none"
            )
        if self.training.batch_rows < self.strategy.least_rows:
            raise ValueError(
                f"training.batch_rows = {self.training.batch_rows} gives strategy.baseline = batch no other row to "
                f"compare with, and so no signal; make it at least {self.strategy.least_rows}, or take "
                "strategy.baseline = leave_one_out"
            )
