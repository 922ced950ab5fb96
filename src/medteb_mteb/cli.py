"""`medteb`: score models on medical retrieval, and build benchmarks and training data."""

from __future__ import annotations

from mar_st.options import application, command, run
from medteb_mteb.commands import compare as compared
from medteb_mteb.commands import submit as submission
from medteb_mteb.commands.editions import edition_app
from medteb_mteb.curation import build
from medteb_mteb.curation.build_file import STEPS
from medteb_mteb.curation.forget import command as forgetting
from medteb_mteb.curation.loop.release import RollbackSettings, rollback
from medteb_mteb.curation.step import add_step
from medteb_mteb.run import run as runs
from medteb_mteb.validate import ValidateSettings, as_text, validate

USUAL, DATA, STEPS_OF_BUILD = "Usual", "Data of a test", "Steps of a build"

app = application(
    "medteb",
    "Evaluate medical text retrieval on MedTEB or your data, and build benchmarks and training data.",
    version=True,
)
command(app, "run", runs.RunSettings, runs.run, show=runs.as_text, group=USUAL)
command(app, "compare", compared.CompareSettings, compared.compare, show=compared.as_text, group=USUAL)
command(app, "site", compared.SiteSettings, compared.site, show=compared.site_as_text, group=USUAL)
command(app, "submit", submission.SubmitSettings, submission.submit, show=submission.as_text, group=USUAL)
command(app, "build", build.BuildSettings, build.build, show=build.as_text, group=USUAL)
command(app, "rollback", RollbackSettings, rollback, group=USUAL)
command(app, "forget", forgetting.ForgetSettings, forgetting.forget, show=forgetting.as_text, group=DATA)
command(app, "validate", ValidateSettings, validate, show=as_text, group=DATA)
app.add_typer(edition_app(), name="edition", rich_help_panel=DATA)
for _step in STEPS.values():
    if _step.alone:
        add_step(app, _step, group=STEPS_OF_BUILD)


def main() -> None:
    """Entry point: an error of the user is one line on stderr, with exit code 2."""
    run(app, "medteb")


if __name__ == "__main__":
    main()
