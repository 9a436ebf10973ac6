"""Whose code a run's folder may have imported: that of a run recorded here, or of one trusted.

A configuration file is given by the user, and so its classes are imported. The `config.json` of a
run may have come from anybody. What this user's own runs record bears a seal, made with a secret
that lies outside all runs.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tianji.config import Config
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_bytes, text

SECRET_BYTES = 32


def code_of(config: Config) -> list[str]:
    """Modules and classes, other than TianJi's own, that a configuration would have imported."""
    parallel, environment = config.parallel, config.environment
    classes = [
        environment.type,
        environment.gym_name,
        config.agent.type,
        config.model.type,
        parallel.actor_cfg.trigger,
        parallel.learner_cfg.trigger,
        parallel.global_cfg.transport,
    ]
    named = [name for name in classes if name is not None and ":" in name]
    if environment.type == "PettingZooEnv":
        named.append(str(environment.kwargs.get("name", "")))
    opponents = environment.kwargs.get("opponents")
    if isinstance(opponents, Mapping):
        named += [str(who) for who in opponents.values() if ":" in str(who)]
    return named


def seal(config: Config) -> str | None:
    """What shows later that this user recorded it here; None where nothing would be imported."""
    key = _key() if code_of(config) else None
    return None if key is None else _sealed(key, json.loads(json.dumps(config.to_json())))


def refuse_strange(config: Config, about: Mapping[str, Any], run: Path, trust: bool) -> None:
    """Raises where what a run recorded, `about`, names code and nobody says that it is good."""
    named = code_of(config)
    if not named or trust or _is_ours(about):
        return
    raise TianJiError(
        f"{run}: its config.json would have {', '.join(named)} imported, from {config.folder!r} or "
        "from an installed package, and it has no seal of yours: you did not record it here. Look "
        "at that code first. To trust it, add --trust (trust=True in Python), or train on with "
        f"your own configuration file: tianji train CONFIG --run-dir {run}"
    )


def _is_ours(about: Mapping[str, Any]) -> bool:
    found, key = text(about.get("seal")), _key(make=False)
    if found is None or key is None:
        return False
    return hmac.compare_digest(found.encode(), _sealed(key, about.get("config")).encode())


def _sealed(key: bytes, recorded: Any) -> str:
    plain = json.dumps(recorded, sort_keys=True).encode()
    return hmac.new(key, plain, hashlib.sha256).hexdigest()


def _key(make: bool = True) -> bytes | None:
    """This user's secret, made when it is needed first; None where none can be kept."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    file = Path(home) / "tianji" / "secret"
    try:
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_once(file)
        key = read_bytes(file, SECRET_BYTES)
    except (OSError, TianJiError):
        return None
    return key if len(key) == SECRET_BYTES else None


def _write_once(file: Path) -> None:
    """Another process may be quicker: whose is there first counts."""
    own = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(SECRET_BYTES))
    finally:
        os.close(descriptor)
    try:
        os.link(own, file)
    except FileExistsError:
        pass
    finally:
        own.unlink()
