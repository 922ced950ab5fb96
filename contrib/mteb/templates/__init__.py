"""Templates of the task files: one module for each family of tasks."""
