"""The figures, tables, theorem and claims of the paper as data, and our numbers beside them."""
