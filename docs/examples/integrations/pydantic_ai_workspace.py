"""Pydantic AI: a workspace whose commands and files are those of a sandbox."""

import asyncio

from cofferdam.integrations.pydantic_ai import CofferdamWorkspaceBackend, delete_workspace


async def main(image: str = "cofferdam/dev") -> str:
    backend = CofferdamWorkspaceBackend(profile="harness", image=image)
    try:
        result = await backend.run(["python3", "-c", "print(6 * 7)"], timeout=30)
        return result.stdout
    finally:
        if backend.ref is not None:
            await delete_workspace(backend.ref)


if __name__ == "__main__":
    print(asyncio.run(main()))
