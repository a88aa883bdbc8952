"""Builds the kernels with Cython; without a compiler the package installs and runs on their Python twins.

Also makes the description that a package index shows: the README, whose links are relative, with addresses of the release.
"""

import re
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildKernelIfPossible(build_ext):
    """`optional=True` alone still fails when no compiler is found, so every build error is caught here."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self._warn(error)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        print(
            f"kafka-actors: a compiled kernel was not built ({error}); "
            "the plain-Python decoder will be used, which is many times slower",
            file=sys.stderr,
        )


def description(readme: str, source: str, version: str) -> str:
    """Returns the README with addresses for its links into the repository, as they are at the tag of `version`."""

    def address(found: re.Match[str]) -> str:
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}[{found['text']}]({source}/{kind}/v{version}/{found['path']})"

    return re.sub(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)\s]+)\)", address, readme)


ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

setup(
    long_description=description(
        (ROOT / "README.md").read_text(encoding="utf-8"), PROJECT["urls"]["Source"], PROJECT["version"]
    ),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "kafka_actors.records._kernel",
            ["kafka_actors/records/_kernel.pyx"],
            depends=[
                f"kafka_actors/records/{part}"
                for part in ("_native.h", "_small.pxi", "_encode.pxi", "_frames.pxi")
            ],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "kafka_actors.fetch._fetch_loop",
            ["kafka_actors/fetch/_fetch_loop.pyx"],
            depends=["kafka_actors/records/_native.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        *(
            Extension(
                f"kafka_actors.schemas.{name}",
                [f"kafka_actors/schemas/{name}.pyx"],
                depends=[
                    f"kafka_actors/schemas/{part}.pxi"
                    for part in ("_columns", "_avro_program", "_columns_read")
                ],
                extra_compile_args=["-O3"],
                optional=True,
            )
            for name in (
                "_avro_kernel",
                "_avro_encoder_kernel",
                "_protobuf_kernel",
                "_protobuf_encoder_kernel",
            )
        ),
    ],
    cmdclass={"build_ext": BuildKernelIfPossible},
)
