"""A plugin of pytest: models are loaded to another device than the CPU, as on a machine with a GPU.

    python -m pytest -p tests.fake_gpu.plugin tests/mar_st/study tests/mar_st/export

`fake` is a device of torch in the memory of the CPU (`device.cpp`). Code that forgets where a tensor is fails
there as on a GPU. Tests marked `cpu` state what holds on a CPU alone, and are skipped.
"""

from __future__ import annotations

import os
import shutil
import types
from pathlib import Path

import pytest
import sentence_transformers.base.model
import sentence_transformers.util
import torch

from mar_st.kernels.build import library

SOURCE = Path(__file__).with_name("device.cpp")
NAME = "fake"
#: What `mar_st.kernels.build` compiles with.
COMPILERS = (os.environ.get("CXX") or "c++", "g++", "clang++")


def compile_device():
    """Compile the device, once per user and version of torch, and register it with torch."""
    root = Path(torch.__file__).parent
    includes = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    linked = [f"-L{root / 'lib'}", f"-Wl,--no-as-needed,-rpath,{root / 'lib'}", "-lc10", "-ltorch_cpu"]
    version = f'-DTORCH="{torch.__version__}"'
    library(SOURCE, ["-std=c++20", "-O1", *includes, *linked, version]).use_fake_gpu()
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, device_module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


def device_module():
    """Return the module `torch.fake`, with the functions that torch expects of a device's module."""
    module = types.ModuleType(f"torch.{NAME}")
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = module.synchronize = module.manual_seed = module.manual_seed_all = lambda *_: None
    module._is_in_bad_fork = lambda: False
    module.get_rng_state = lambda *_: torch.get_rng_state()
    module.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    return module


def pytest_configure(config):
    if not any(map(shutil.which, COMPILERS)):
        pytest.exit(f"No test was run: there is no C++ compiler ({', '.join(COMPILERS)}).", returncode=0)
    compile_device()
    for place in (sentence_transformers.base.model, sentence_transformers.util):
        place.get_device_name = lambda: NAME


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("cpu"):
            item.add_marker(pytest.mark.skip(reason="holds on a CPU alone"))
