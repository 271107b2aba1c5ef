"""Boundaries of a byte-pair encoding trained on the same corpus, read causally."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.errors import UserError
from byteseam.model.unet import document_starts
from byteseam.strategies.base import EXACT, Pooled, fixed_decision
from byteseam.types import DOCUMENT_MARK, Batch, Decision, Encoded

LARGEST_VOCABULARY = 65_536
"""Entries that are tried at most, the 256 bytes included."""

LONGEST_PIECE_BYTES = 64
"""Merges are learned within pieces of at most so many bytes: text without spaces must end somewhere."""

SAMPLE_BYTES = 300_000
"""Bytes kept aside that the rate is measured on."""

RATE_SLACK = 0.05
"""Share by which the rate may miss its target before it counts as out of reach."""

_IS_SPACE_LIKE = np.array([byte < 0x80 and not chr(byte).isalnum() for byte in range(DOCUMENT_MARK + 1)])
_IS_SPACE_LIKE[DOCUMENT_MARK] = False

_LETTERS = [chr(0x4E00 + byte) for byte in range(256)]
"""A character for every byte that no library takes for white space."""

_TO_LETTERS = dict(enumerate(_LETTERS))


class Merges(nn.Module):
    """The merges of a byte-pair encoding, in order, as pairs of entries: 0 to 255 are bytes, 256 + k is merge k."""

    merges: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Room for the largest: the number is found later, and a file's shapes must not depend on it.
        self.register_buffer("merges", torch.full((LARGEST_VOCABULARY - 256, 2), -1, dtype=torch.int32))
        self._trie: tuple[int, dict[int, tuple[int, int]]] | None = None

    def trie(self) -> dict[int, tuple[int, int]]:
        """See `trie_of`; made again when the merges change."""
        version = self.merges._version
        if self._trie is None or self._trie[0] != version:
            found = self.merges[self.merges[:, 0] >= 0].tolist()
            self._trie = (version, trie_of([(left, right) for left, right in found]))
        return self._trie[1]


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Bpe(Pooled):
    """A boundary at the first byte of every entry of a byte-pair vocabulary but a document's first.

    The vocabulary is trained on the training text with the `tokenizers` library; how many of its merges are used is
    found on text kept aside, so that the rate is the one asked for.

    BPE itself looks ahead: which merges apply inside a word depends on bytes that are still to come, and so a prefix
    is cut otherwise than the whole. Here the text is cut from left to right instead: an entry goes on as long as some
    entry of the vocabulary begins that way, and the byte that no entry goes on with is the first of the next. A
    boundary is thus used only once its byte was read, never because of a later one. On English prose nine tenths of
    the boundaries are those of BPE proper, at the same rate.
    """

    name: ClassVar[str] = "bpe"
    learns: ClassVar[str] = "a vocabulary, by counting pairs in the training text"
    rate_control: ClassVar[str] = "the vocabulary's size is found for the rate"
    source: ClassVar[str] = "Sennrich et al. 2016; guidance as in arXiv 2602.13940"
    by_rule: ClassVar[bool] = True
    fit_bytes: ClassVar[int] = 8_000_000

    vocabulary: int | None = Field(default=None, ge=256, le=LARGEST_VOCABULARY)
    """Entries, the 256 bytes included; ``None``: as many as give the rate."""
    within: Literal["words", "lines"] = "words"
    """Merges stay within words, each with the white space and punctuation before it, or within lines."""

    def build(self, width: int) -> Merges:
        return Merges()

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Follows each row through the vocabulary; certain."""
        assert isinstance(policy, Merges)
        ids, trie = batch.byte_ids.cpu().numpy(), policy.trie()
        pieces = piece_starts(ids, self.within)
        rows = [cut(row, firsts, trie) for row, firsts in zip(ids.tolist(), pieces.tolist(), strict=True)]
        boundary = torch.tensor(rows, dtype=torch.bool, device=batch.mask.device).view(batch.mask.shape)
        return fixed_decision(boundary, document_starts(batch.document_ids), batch.mask)

    def fit(self, policy: nn.Module, documents: Sequence[bytes]) -> None:
        """Merges from nine tenths of the documents; their number from the rest."""
        assert isinstance(policy, Merges)
        kept_aside = documents[::10] if len(documents) > 1 else documents
        learned_from = [text for number, text in enumerate(documents) if number % 10] or list(documents)
        most = (self.vocabulary or LARGEST_VOCABULARY) - 256
        merges = learn_merges((piece for text in learned_from for piece in pieces_of(text, self.within)), most)
        if self.vocabulary is None:
            merges = merges[: self.merges_for_rate(merges, kept_aside)]
        elif len(merges) < most:
            raise UserError(
                f"strategy.vocabulary = {self.vocabulary}, but the training text is too small for more than "
                f"{256 + len(merges)} entries; give more text, or a smaller vocabulary"
            )
        with torch.no_grad():
            policy.merges.fill_(-1)
            if merges:
                policy.merges[: len(merges)] = torch.tensor(merges, dtype=torch.int32)

    def merges_for_rate(self, merges: list[tuple[int, int]], documents: Sequence[bytes]) -> int:
        """How many of the merges give the rate on these documents.

        Raises:
            UserError: if all of them give a higher one.
        """
        ids = np.frombuffer(b"".join(documents)[:SAMPLE_BYTES], np.uint8).astype(np.int64)
        firsts = piece_starts(ids[None], self.within)[0].tolist()
        row, trie = ids.tolist(), trie_of(merges)

        def rate(used: int) -> float:
            return sum(cut(row, firsts, trie, 256 + used)) / max(len(row), 1)

        low, high = 0, len(merges)
        if (best := rate(high)) > self.rate * (1 + RATE_SLACK):
            other = '"lines"' if self.within == "words" else None
            raise UserError(
                f"strategy.bytes_per_token = {self.bytes_per_token:g} is more than a BPE of this text reaches: its "
                f"{256 + high:,} entries give {1 / best:.2f}; lower it, give more text"
                + (f", or set strategy.within = {other}" if other else "")
            )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if rate(middle) > self.rate else (low, middle)
        return high


def piece_starts(ids: NDArray[np.int64], within: Literal["words", "lines"]) -> NDArray[np.bool_]:
    """Where pieces begin that no entry reaches beyond [B, L], told by a byte and the one before.

    Words: at ASCII white space or punctuation that follows something else. Lines: after a line feed.
    """
    before = np.concatenate([np.full_like(ids[:, :1], DOCUMENT_MARK), ids[:, :-1]], axis=1)
    if within == "lines":
        return before == 10
    return _IS_SPACE_LIKE[ids] & ~_IS_SPACE_LIKE[before]


def pieces_of(text: bytes, within: Literal["words", "lines"]) -> Iterator[bytes]:
    """The pieces of a document, the longest cut."""
    ids = np.frombuffer(text, np.uint8).astype(np.int64)[None]
    starts = [0, *np.flatnonzero(piece_starts(ids, within)[0]).tolist(), len(text)]
    for first, last in pairwise(starts):
        for at in range(first, last, LONGEST_PIECE_BYTES):
            yield text[at : min(at + LONGEST_PIECE_BYTES, last)]


def learn_merges(pieces: Iterator[bytes], most: int) -> list[tuple[int, int]]:
    """At most so many merges, the most frequent pair first, none that occurs once; by the `tokenizers` library.

    Raises:
        UserError: if the library is missing.
    """
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError as error:
        raise UserError("the strategy bpe needs the tokenizers library: pip install 'byteseam[bpe]'") from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + most, initial_alphabet=_LETTERS, min_frequency=2, show_progress=False
    )
    translated = (piece.decode("latin-1").translate(_TO_LETTERS) for piece in pieces)
    tokenizer.train_from_iterator(translated, trainer=trainer)
    model = json.loads(tokenizer.to_str())["model"]
    # The library numbers its entries as it likes; ours are the bytes, then the merges in order.
    number = {letter: byte for byte, letter in enumerate(_LETTERS)}
    merges: list[tuple[int, int]] = []
    for left, right in model["merges"][:most]:
        number.setdefault(left + right, 256 + len(merges))
        merges.append((number[left], number[right]))
    return merges


def trie_of(merges: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Every beginning of every entry: ``node * 256 + byte -> (next node, the first entry that begins so)``.

    The root is node 0; an entry's number tells from which vocabulary size on it is there.
    """
    entries = [bytes([byte]) for byte in range(256)]
    entries += [b""] * len(merges)
    trie: dict[int, tuple[int, int]] = {}
    for number, (left, right) in enumerate(((-1, -1),) * 256 + tuple(merges)):
        if number >= 256:
            entries[number] = entries[left] + entries[right]
        node = 0
        for byte in entries[number]:
            node, _ = trie.setdefault(node * 256 + byte, (len(trie) + 1, number))
    return trie


def cut(
    ids: list[int], firsts: list[bool], trie: dict[int, tuple[int, int]], vocabulary: int = LARGEST_VOCABULARY
) -> list[bool]:
    """True at the first byte of every entry but a document's first.

    Args:
        ids: bytes and document marks.
        firsts: True where a piece begins that no entry reaches beyond.
        vocabulary: how many entries are used.
    """
    out = [False] * len(ids)
    node, fresh = 0, True
    for index, byte in enumerate(ids):
        if byte == DOCUMENT_MARK:
            node, fresh = 0, True
            continue
        step = None if firsts[index] else trie.get(node * 256 + byte)
        if step is None or step[1] >= vocabulary:
            step = trie[byte]
            out[index] = not fresh
        node, fresh = step[0], False
    return out
