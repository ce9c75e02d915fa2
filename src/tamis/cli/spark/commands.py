"""`tamis spark`: the group of commands."""

from __future__ import annotations

from typing import Final

import typer

from tamis.cli.help_text import flowing
from tamis.cli.spark import compile as compile_command
from tamis.cli.spark import forget, match, stream, workloads

spark: Final = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Compile and match in bulk on Spark."
)

for name, command, examples in (
    ("compile", compile_command.compile_, compile_command.EXAMPLES),
    ("match", match.match, match.EXAMPLES),
    ("stream", stream.stream, stream.EXAMPLES),
    ("forget", forget.forget, forget.EXAMPLES),
    ("generate", workloads.generate, workloads.GENERATE_EXAMPLES),
    ("experiment", workloads.experiment, workloads.EXPERIMENT_EXAMPLES),
):
    spark.command(name=name, epilog=flowing(examples), no_args_is_help=True)(command)
