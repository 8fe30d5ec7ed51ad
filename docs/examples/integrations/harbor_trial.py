"""Harbor: a trial whose environment is a sandbox. The task's own solution is the agent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FILES = {
    "task.toml": 'schema_version = "1.4"\n[environment]\ndocker_image = "IMAGE"\nnetwork_mode = "no-network"\n',
    "instruction.md": "Write 42 into the file `answer`.\n",
    "environment/given.txt": "42\n",
    "solution/solve.sh": "#!/bin/bash\necho 42 >answer\n",
    "tests/test.sh": "#!/bin/bash\ngrep -c 42 answer >/logs/verifier/reward.txt\n",
}
ENVIRONMENT = ["--env", "cofferdam.integrations.harbor:CofferdamEnvironment", "--ek", "profile=harness"]


def main(place: Path, image: str = "cofferdam/dev") -> Any:
    for name, text in FILES.items():
        file = place / "task" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("IMAGE", image))
    places = ["--path", str(place / "task"), "--jobs-dir", str(place / "jobs")]
    harbor = Path(sys.executable).with_name("harbor")
    subprocess.run([str(harbor), "run", "--yes", *places, "--agent", "oracle", *ENVIRONMENT], check=True)
    (result,) = place.glob("jobs/*/*/result.json")
    return json.loads(result.read_text())["verifier_result"]["rewards"]


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
