"""Classes and methods that only the reference pages ask for: the product uses none of them.

The page "The reference systems" of the documentation lists them, and `tests/unit/test_reference_table.py` compares them with the
pages. A class that gets a caller in the product moves to the package of that caller.
"""
