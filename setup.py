"""Builds the record kernel with Cython; without a compiler the package installs and runs on its Python twin."""

import sys

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
            f"kafka-actors: the compiled record kernel was not built ({error}); "
            "the plain-Python decoder will be used, which is many times slower",
            file=sys.stderr,
        )


setup(
    ext_modules=[
        Extension(
            "kafka_actors.records._kernel",
            ["kafka_actors/records/_kernel.pyx"],
            depends=[f"kafka_actors/records/{part}" for part in ("_native.h", "_encode.pxi", "_frames.pxi")],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernelIfPossible},
)
