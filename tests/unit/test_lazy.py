"""Libraries that are loaded late, and what their loading leaves out."""

import gc

import pytest

from tianji.core.lazy import loading


def test_no_garbage_is_looked_for_while_libraries_load():
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_garbage_is_looked_for_again_after_a_library_failed_to_load():
    with pytest.raises(ImportError), loading():
        raise ImportError("no such library")
    assert gc.isenabled()


def test_who_had_it_switched_off_finds_it_switched_off():
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
