"""Attacks on what is kept in files and on the books of the wrappers: `make chaos` tries all of them, and prints what survived.

An attack is a step of a generator: None if it was survived, or a text that says what went wrong.
"""
