"""Every figure, table, theorem and claim of the paper, as data."""
