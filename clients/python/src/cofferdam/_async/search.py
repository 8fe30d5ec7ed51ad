"""`sandbox.search`."""

from cofferdam import _results, v1
from cofferdam._async.caller import Caller
from cofferdam.types import Found, Match


class Search:
    """Finds files by their text or name, as ripgrep does, without a program in the image."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        glob: str | None = None,
        before: int = 0,
        after: int = 0,
        max_matches: int = 1000,
        include_ignored: bool = False,
    ) -> Found[Match]:
        """Lines with this text in a file or beneath a directory.

        `regex`: `pattern` is a regular expression (Rust's syntax: no look-around, and none takes forever). `glob`: only
        files whose path matches. `before`, `after`: lines of context, 0 to 20. `max_matches`: 1 to 1,000; `truncated` says
        if there are more. `include_ignored`: also hidden files and files that ignore files exclude. Binary files are never
        searched. Where nothing is found, `hint` says what was left out.
        """
        request = v1.GrepRequest(
            path=path,
            pattern=pattern,
            regex=regex,
            case_insensitive=ignore_case,
            before=before,
            after=after,
            glob=glob or "",
            max_matches=max_matches,
            include_ignored=include_ignored,
        )
        return _results.matches((await self._caller.result(v1.Operation(grep=request), of_file=True)).grep)

    async def glob(
        self, pattern: str, path: str = ".", *, include_ignored: bool = False, max_results: int = 10_000
    ) -> Found[str]:
        """Files whose path beneath `path` matches: `*`, `**`, `?`, `{a,b}`, `[…]`.

        A pattern that begins with `@project/` or `/workspace/` is for the path from there. Where nothing is found, `hint`
        says what was left out.

        `include_ignored`: also hidden files and files that ignore files exclude. `max_results`: 1 to 10,000; `truncated`
        says if there are more.
        """
        request = v1.GlobRequest(path=path, pattern=pattern, include_ignored=include_ignored, max_results=max_results)
        return _results.globbed((await self._caller.result(v1.Operation(glob=request), of_file=True)).glob)
