"""A profile that asks a person, and the person."""

import time

from cofferdam import ApprovalInfo, Client, Sandbox

#: As harness, but that a person is asked for each command and each write.
ASKING = """
profiles:
  asking:
    description: Each command is asked for.
    root: writable-layer
    tmp: exec
    allowed_images: ["*"]
    operations: { exec: ask, shell: ask, process: ask, write: ask, edit: ask }
    exec: { deny_list: off, default: allow, env: ["*"] }
    approvals: { freeze: false }
roles: { worker: { allow: "*" } }
"""
# Seconds.
PATIENCE = 60.0


def next_asked(run_id: str) -> ApprovalInfo:
    """What a run asks for, when it does."""
    end = time.monotonic() + PATIENCE
    with Client() as client:
        sandbox = Sandbox.connect(run_id, client=client)
        while time.monotonic() < end:
            for asked in sandbox.approvals.list():
                return asked
            time.sleep(0.05)
    raise AssertionError("the run asks for nothing")


def approve_next(run_id: str) -> ApprovalInfo:
    """Waits for that, and consents."""
    asked = next_asked(run_id)
    with Client() as client:
        return Sandbox.connect(run_id, client=client).approvals.approve(asked.approval_id)
