"""Builds the CPU kernels where there is a compiler; else XLA does their work."""

import pathlib
import platform
import sys

import jaxlib
from setuptools import Extension, setup

SOURCES = pathlib.Path("dpsparfl_jax/training/cpu")


def kernels() -> list[Extension]:
    """The module of kernels; none on processors that they are not written for."""
    if platform.machine() != "x86_64" or sys.platform == "win32":
        return []
    headers = pathlib.Path(jaxlib.__file__).parent / "include"
    return [
        Extension(
            "dpsparfl_jax.training.cpu.kernels",
            sorted(map(str, SOURCES.glob("*.cc"))),
            depends=sorted(map(str, [*SOURCES.glob("*.h"), *SOURCES.glob("*.inc")])),
            extra_compile_args=[
                *("-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno"),
                *("-fno-trapping-math", "-isystem", str(headers)),
            ],
            optional=True,
        )
    ]


setup(ext_modules=kernels())
