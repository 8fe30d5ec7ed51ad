"""Checks of frameworks that cannot hold, by name and with their reason. clients/python/README.md shows the same list."""

from collections.abc import Mapping

STALE = "langchain-tests expects the behaviour of Deep Agents before 0.7: its own backends fail this, too"
ROOT = "becomes another user or root: a run has one user"
CLIENT = "asks SWE-ReX's own HTTP client for a host that is not there"
OPTIONAL = "is about a method that a backend need not have"
NOTICE = "expects the notice of a killed job in the output of the next command, which here has its own output alone"

#: By suite and name of the test. These have to fail, so that one that holds after all is taken out.
KNOWN: Mapping[str, Mapping[str, str]] = {
    "suite_deepagents": dict.fromkeys(
        [
            "test_glob",
            "test_glob_basic_pattern",
            "test_glob_hidden_files_explicitly",
            "test_glob_with_character_class",
            "test_glob_with_directories",
            "test_glob_with_question_mark",
            "test_write_existing_file_fails",
        ],
        STALE,
    ),
    "suite_inspect": {
        "test_exec_as_user": ROOT,
    },
    "suite_swerex": {
        "test_interrupt_pager": NOTICE,
    },
}

#: These are not run: they try nothing of this project.
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "suite_pydantic_ai": {
        "test_native_realpath_keeps_the_working_dir_and_missing_names": OPTIONAL,
    },
    "suite_swerex": {
        "test_server_dead": CLIENT,
    },
}
