"""The `environment` section of a config, for tests of environments."""

from tianji.config.binder import bind
from tianji.config.environment import EnvironmentConfig
from tianji.config.reader import parse_value
from tianji.config.section import Place


def environment(arguments):
    """What `environment = dict(...)` gives; an AtariEnv unless a type is given."""
    kind = "" if "type='GymEnv'" in arguments or "type='Catch'" in arguments else "type='AtariEnv',"
    section = parse_value(f"dict({kind} {arguments})", Place("a.py", 1))
    return bind(EnvironmentConfig, section, "environment")
