"""Builds the compiled kernel where a C compiler is there; without one, everything else is installed all the same."""

from pathlib import Path

from setuptools import Extension, setup

KERNEL = Path("src/truthfl/learning/training/kernel")

setup(
    ext_modules=[
        Extension(
            "truthfl.learning.training._kernel",
            sources=[str(KERNEL / name) for name in ("plain.c", "avx2.c", "avx512.c", "choose.c")],
            depends=sorted(str(header) for header in KERNEL.glob("*.h")),
            extra_compile_args=["-O3", "-std=gnu11", "-Wno-psabi", "-pthread"],
            extra_link_args=["-pthread"],
            libraries=["m"],
            optional=True,
        )
    ]
)
