"""Implementation of the `mar` commands; `mar_st.cli` only parses their arguments."""
