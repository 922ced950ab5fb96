"""`medteb`: score models on medical retrieval, and build benchmarks and training data."""

from __future__ import annotations

from mar_st.options import application, command, run
from medteb_mteb.commands import benchmarks, leakage, validate
from medteb_mteb.commands import run as runs
from medteb_mteb.commands.editions import edition_app
from medteb_mteb.curation import build
from medteb_mteb.curation.step import add_step
from medteb_mteb.validate.settings import ValidateSettings

__all__ = ["app", "main"]

EVALUATE, BUILD, STEPS_OF_BUILD = "Evaluate", "Build", "Steps of a build"

app = application(
    "medteb",
    "Evaluate medical text retrieval on MedTEB or your data, and build benchmarks and training data.",
    version=True,
)


command(app, "run", runs.RunSettings, runs.run, show=runs.as_text, group=EVALUATE)
command(
    app,
    "benchmarks",
    benchmarks.BenchmarksSettings,
    benchmarks.benchmarks,
    show=benchmarks.as_text,
    group=EVALUATE,
)
command(app, "validate", ValidateSettings, validate.validate, show=validate.as_text, group=EVALUATE)
command(app, "leakage", leakage.LeakageSettings, leakage.leakage, show=leakage.as_text, group=EVALUATE)
command(app, "build", build.BuildSettings, build.build, show=build.as_text, group=BUILD)
app.add_typer(edition_app(), name="edition", rich_help_panel=BUILD)
for _step in build.STEPS.values():
    add_step(app, _step, group=STEPS_OF_BUILD)


def main() -> None:
    """Entry point: an error of the user is one line on stderr, with exit code 2."""
    run(app, "medteb")


if __name__ == "__main__":
    main()
