"""Profiles that ask a person, and the person."""

import time

from cofferdam import ApprovalInfo, Client, Sandbox

_PROFILE = """
  {name}:
    description: For tests.
    workspace: read-write
    root: writable-layer
    tmp: exec
    allowed_images: ["*"]
    operations: {operations}
    exec: {{ deny_list: off, default: allow, env: ["*"] }}
    approvals: {{ freeze: false }}
    bounds: {{ max_output_bytes: 4096, max_spool_bytes: 65536 }}
"""
#: As harness, but that a person is asked, under `asking` for each command, under `reviewing` for changes of files.
#: Under all of them a command may write 64 KiB of output. Under `little` commands run at once.
ASKING = (
    "profiles:"
    + _PROFILE.format(
        name="asking", operations="{ read: allow, write: allow, edit: allow, exec: ask, shell: ask, process: ask }"
    )
    + _PROFILE.format(name="reviewing", operations="{ read: allow, write: ask, edit: ask, exec: ask }")
    + _PROFILE.format(name="little", operations="{ exec: allow }")
    + 'roles: { worker: { allow: "*" } }\n'
)
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
