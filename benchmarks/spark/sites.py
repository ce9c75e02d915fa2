"""Spark sessions in separate processes, so that different masters can take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Concatenate, ParamSpec, TypeVar

from pyspark.sql import SparkSession

from tamis.spark import local_session

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Site:
    """A process with a session; it waits without work while others are asked."""

    def __init__(self, master: str) -> None:
        self.master = master
        self._process = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=local_session, initargs=(master,)
        )

    def ask(
        self,
        function: Callable[Concatenate[SparkSession, Given], Answer],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Answer:
        """Call a function with the session there, and wait for what it returns."""
        answer: Answer = self._process.submit(_answer, function, args, kwargs).result()
        return answer

    def close(self) -> None:
        """Stop the session and end the process."""
        self.ask(SparkSession.stop)
        self._process.shutdown()


@contextmanager
def open_site(master: str) -> Iterator[Site]:
    """Start a session in a new process, and end both afterwards."""
    site = Site(master)
    try:
        yield site
    finally:
        site.close()


def _answer(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    return function(SparkSession.active(), *args, **named)
