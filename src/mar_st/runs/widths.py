"""Widths of a recipe's encoders, read from their files, against the dimensions that the recipe asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentence_transformers.base.modules import Dense

from mar_st.errors import MarError
from mar_st.model.saved_modules import saved_modules
from mar_st.planning.backbones import shape_of
from mar_st.recipes.rules import projects

if TYPE_CHECKING:
    from mar_st.recipes.schema import Backbone, Recipe, Side


def check_widths(recipe: Recipe) -> None:
    """Check `dim`, `dims` and `projection` against the widths of the encoders, without loading weights.

    Raises:
        MarError: A stage cannot train vectors of these dimensions; or the source of a backbone ends in a
            linear layer of another width than its projection.
    """
    widths: dict[Side, tuple[int, int]] = {}
    sides: tuple[Side, ...] = ("query", "document")
    for side in sides:
        backbone: Backbone | None = getattr(recipe, side)
        if backbone is not None:
            layer = saved_projection(backbone)
            own = shape_of(backbone, recipe.document).width
            if layer is not None and layer != backbone.projection:
                raise MarError(
                    f"{side} backbone: {backbone.source} ends in a linear layer of width {layer}, but "
                    f"'projection' is {backbone.projection or 'not given'}. Set projection: {layer}, or give "
                    "an encoder without such a layer."
                )
            widths[side] = (layer or own, backbone.projection or own)
    if recipe.asymmetric:
        query, document = widths["query"][1], widths["document"][1]
        if query != recipe.dim:
            raise MarError(
                f"dim is {recipe.dim}, but vectors of the query encoder have {query} dimensions. "
                f"Set dim: {query}, or give the query encoder projection: {recipe.dim}."
            )
        if document < recipe.dim:
            raise MarError(
                f"dim is {recipe.dim}, but vectors of the document encoder have only {document} dimensions. "
                f"Set dim to {document} at most, or give another document encoder."
            )
    for stage in recipe.stages:
        trained: Any = getattr(stage, "side", None)
        dims = getattr(stage, "dims", ())
        if trained not in widths or not dims:
            continue
        before, after = widths[trained]
        width = after if projects(recipe, stage) else before
        if max(dims) > width:
            later = "; the projection comes with the first stage that joins both sides"
            raise MarError(
                f"stage {stage.name}: dims {tuple(dims)} exceed the width {width}"
                f"{later if after >= max(dims) else ''}. Give dims up to {width}."
            )


def saved_projection(backbone: Backbone) -> int | None:
    """Return the width of the linear layer that the source of a backbone ends in, `None` without one.

    Raises:
        MarError: The source has modules that an encoder cannot take over.
    """
    saved = None if backbone.source is None else saved_modules(backbone.source, backbone.revision)
    if saved is None or saved.dense is None:
        return None
    config: dict[str, Any] = Dense.load_config(saved.name, subfolder=saved.dense, revision=backbone.revision)
    return int(config["out_features"])
