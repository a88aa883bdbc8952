"""The text of a `.sql(…)` stage, for PySpark to put the DataFrame in."""

from __future__ import annotations

import re
from string import Formatter

_THIS = re.compile(r"(\{this(?:\[[^\]{}]*\])?\})")


def template(query: str) -> str:
    """The query as `spark.sql(query, this=df)` wants it, where every brace is doubled but those of {this}, or
    {this[column]}.

    Here braces stand for themselves, as in `rlike '[0-9]{3}'`. A query in which they are doubled already stays as it is.
    """
    if _is_template(query):
        return query
    parts = _THIS.split(query)
    parts[::2] = (part.replace("{", "{{").replace("}", "}}") for part in parts[::2])
    return "".join(parts)


def _is_template(query: str) -> bool:
    try:
        names = [name for _, name, _, _ in Formatter().parse(query) if name is not None]
    except ValueError:  # a brace alone
        return False
    return all(name == "this" or name.startswith("this[") for name in names)
