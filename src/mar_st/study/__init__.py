"""Studies: a grid of recipes x seeds, scored and compared with tests."""

from __future__ import annotations

from mar_st.study.grid import Study, StudyRow, load_study, run_study, study_names

__all__ = ["Study", "StudyRow", "load_study", "run_study", "study_names"]
