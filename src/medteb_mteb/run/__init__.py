"""`medteb run`: models evaluated on tasks with mteb, and the table of scores."""
