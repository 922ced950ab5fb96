"""What the commands of `mar` do; `mar_st.cli` only parses."""
