"""Any folder in the Hub layout as a task: checked, read from its own files, evaluated by mteb."""
