"""Studies: a grid of recipes x seeds, scored and compared with tests."""

from __future__ import annotations

from mar_st.study.schema import Study, StudyError, load_study, study_names

__all__ = ["Study", "StudyError", "load_study", "study_names"]
