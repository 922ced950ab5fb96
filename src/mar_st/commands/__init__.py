"""The commands of `mar`; `mar_st.cli` has the short ones."""
