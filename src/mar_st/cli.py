"""`mar`: train and use asymmetric retrievers."""

from __future__ import annotations

from mar_st.commands import index, models
from mar_st.commands import train as training
from mar_st.commands.search import SearchSettings, found, search
from mar_st.export import ExportSettings, export
from mar_st.export import as_text as exported
from mar_st.graded.train import GraderSettings, train_grader
from mar_st.mining.rules import MineSettings
from mar_st.options import application, command, run
from mar_st.serve import ServeSettings
from mar_st.serve import run as serve
from mar_st.spaces import AlignSettings

app = application(
    "mar", "Train, encode, index and serve asymmetric models for medical text retrieval.", version=True
)
indexes = application("index", "Build, change and tune indexes.")
command(indexes, "build", index.IndexBuild, index.index_build)
command(indexes, "update", index.IndexUpdate, index.index_update)
command(indexes, "tune", index.IndexTune, index.index_tune)


TRAIN, SEARCH, FOLDERS = "Train", "Search", "Folders"
command(app, "train", training.TrainSettings, training.run_train, show=training.show_trained, group=TRAIN)
command(app, "align", AlignSettings, models.align, group=TRAIN)
command(app, "mine", MineSettings, models.mine, group=TRAIN)
command(app, "cross-encoder", GraderSettings, train_grader, group=TRAIN)
command(app, "ablate", training.AblateSettings, training.run_ablate, group=TRAIN)
command(app, "recipes", training.RecipesSettings, training.run_recipes, group=TRAIN)
command(app, "encode", index.EncodeCommand, index.encode, group=SEARCH)
app.add_typer(indexes, rich_help_panel=SEARCH)
command(app, "search", SearchSettings, search, show=found, group=SEARCH)
command(app, "serve", ServeSettings, serve, group=SEARCH)
command(app, "export", ExportSettings, export, show=exported, group=SEARCH)
command(app, "trim", models.TrimSettings, models.trim, group=FOLDERS)
command(app, "info", models.InfoSettings, models.info, group=FOLDERS)


def main() -> None:
    """Entry point of `mar`."""
    run(app, "mar")


if __name__ == "__main__":
    main()
