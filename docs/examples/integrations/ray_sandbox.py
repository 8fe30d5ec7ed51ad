"""Ray: an actor with a sandbox. Only the import of `create` is not Ray's."""

import ray

from cofferdam.integrations.ray import create  # was: from ray.experimental.sandbox import create


def main(image: str = "cofferdam/dev") -> str:
    sandbox = create(image, cpu=1, memory="1Gi", workdir="/workspace")
    try:
        ray.get(sandbox.write_file.remote("answer.py", "print(6 * 7)"))
        done = ray.get(sandbox.exec.remote("python3 answer.py", timeout=20))
        return str(done.stdout)
    finally:
        ray.get(sandbox.terminate.remote())


if __name__ == "__main__":
    ray.init()
    print(main())
