"""The steps of a loop: from the texts of a month to a retriever that serves them."""
