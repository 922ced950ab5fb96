"""Modules of this package that saved models use.

sentence-transformers imports classes of other packages for a saved model only with `trust_remote_code=True`.
The classes here belong to the package that loads them, so its own loaders need no such consent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers.util import import_module_class

from mar_st.lookup.module import LookupEncoder
from mar_st.modules.bigrams import BigramTransformer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

#: Classes by their names in saved models.
OWN_MODULES: Mapping[str, type[nn.Module]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind for kind in (BigramTransformer, LookupEncoder)
}


def module_class(name: str, source: str, *, trust_remote_code: bool = False, **hub: Any) -> type[nn.Module]:
    """Return the class of a saved module.

    Args:
        name: Full class name, including its module.
        source: Folder or Hub name of the model that contains it.
        trust_remote_code: Also load classes of the model itself or of other packages.
        **hub: `token`, `cache_folder`, `revision`, `local_files_only`.

    Raises:
        ValueError: The class is neither of this package nor of sentence-transformers, and `trust_remote_code`
            is False.
    """
    saved_class: type[nn.Module] = OWN_MODULES.get(name) or import_module_class(
        name, source, trust_remote_code=trust_remote_code, **hub
    )
    return saved_class
