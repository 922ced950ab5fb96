"""`mar`: train and use asymmetric retrievers."""

from __future__ import annotations

from mar_st.commands import train as training
from mar_st.commands.align import align
from mar_st.commands.cross_encoder import cross_encoder
from mar_st.commands.encode import EncodeCommand, encode
from mar_st.commands.encode import shown as encoded
from mar_st.commands.index import index_build, index_info, index_update
from mar_st.commands.index_match import index_match
from mar_st.commands.index_tune import index_tune
from mar_st.commands.mine import mine
from mar_st.commands.mine import shown as mined
from mar_st.commands.model import InfoSettings, PushSettings, as_json, info, push
from mar_st.commands.search import search
from mar_st.commands.trim import TrimSettings, trim
from mar_st.commands.trim import as_text as trimmed
from mar_st.commands.version import Version
from mar_st.export import ExportSettings, export
from mar_st.export import as_text as exported
from mar_st.mining import MineSettings
from mar_st.options import application, command, run
from mar_st.serve import ServeSettings
from mar_st.serve import run as serve

app = application("mar", "Train, encode, index and serve asymmetric models for medical text retrieval.")
indexes = application("index", "Build, change, tune and inspect indexes.")
indexes.command("build")(index_build)
indexes.command("update")(index_update)
indexes.command("tune")(index_tune)
indexes.command("match")(index_match)
indexes.command("info")(index_info)


@app.callback()
def _root(version: Version = False) -> None:
    del version


command(app, "recipes", training.RecipesSettings, training.run_recipes, show=training.show_recipes)
command(app, "plan", training.PlanSettings, training.run_plan, show=training.show_plan)
command(app, "train", training.TrainSettings, training.run_train, show=training.show_result)
command(app, "ablate", training.AblateSettings, training.run_ablate, show=training.show_result)
app.command()(align)
app.command("cross-encoder")(cross_encoder)
command(app, "mine", MineSettings, mine, show=mined)
command(app, "encode", EncodeCommand, encode, show=encoded)
app.add_typer(indexes)
app.command()(search)
command(app, "trim", TrimSettings, trim, show=trimmed)
command(app, "export", ExportSettings, export, show=exported)
command(app, "serve", ServeSettings, serve)
command(app, "info", InfoSettings, info, show=as_json)
command(app, "push", PushSettings, push)


def main() -> None:
    """Entry point of `mar`."""
    run(app, "mar")


if __name__ == "__main__":
    main()
