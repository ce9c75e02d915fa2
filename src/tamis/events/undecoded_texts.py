"""Texts that stay the bytes they came as until somebody asks for one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray


class UndecodedTexts(Sequence[str]):
    """Spans of bytes that are UTF-8, as a sequence of texts.

    >>> data = np.frombuffer(b"one,two", np.uint8)
    >>> list(UndecodedTexts(data, np.array([4, 0]), np.array([7, 3])))
    ['two', 'one']
    """

    def __init__(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self.data: Final = data
        self.starts: Final = starts
        self.ends: Final = ends

    @cached_property
    def _decoded(self) -> list[str]:
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        data = memoryview(self.data)  # type: ignore[arg-type]
        return [str(data[start:end], "utf-8") for start, end in spans]

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: Any) -> Any:
        return self._decoded[place]

    def __eq__(self, other: object) -> bool:
        return self._decoded == other

    __hash__ = None  # type: ignore[assignment]
