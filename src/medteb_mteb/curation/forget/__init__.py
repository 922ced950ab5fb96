"""`medteb forget`: the texts of a person are removed from everything below some folders, which is proved."""
