"""How the tests check annotations at run time: shapes by jaxtyping, all else by beartype, where an int is also a float."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
