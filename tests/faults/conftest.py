"""What the fault tests need of the machine, asked once; without it they are skipped, and say why."""

from contextlib import ExitStack

import pytest

from faults import machine


@pytest.fixture(scope="session")
def strace():
    machine.require_strace()


@pytest.fixture(scope="session")
def mount():
    machine.require_mount()


@pytest.fixture
def folder():
    """A folder in memory, where fsync costs nothing; for tests in which the machine itself does not fail."""
    with machine.scratch(64) as made:
        yield made


@pytest.fixture
def disk(mount):
    """A small disk whose power can be cut."""
    with ExitStack() as stack:
        yield machine.Disk(stack)
