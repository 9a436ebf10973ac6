"""What a state goes through on its way into a checkpoint and back."""

import json

from tianji.core.state import join, split


def carried(state):
    """The state as it comes back: facts through JSON, arrays in other memory, for reading only."""
    arrays, facts = split(state)
    arrays = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    return join(arrays, json.loads(json.dumps(facts)))
