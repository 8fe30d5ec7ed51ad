"""Compose files as the integrations of frameworks read them. The command line has the same table in Rust."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cofferdam import Companion, Limits
from cofferdam.integrations._compose import Main, Project, parse, read

WHOLE = """
name: shop
x-cofferdam: { profile: services }
x-common: &env { LOG_LEVEL: info, ANSWER: no }
services:
  default:
    image: shop/app:1
    environment: *env
    command: sleep infinity
    init: true
    network_mode: none
    cpus: 1.5
    mem_limit: 0.5gb
    depends_on:
      db: { condition: service_healthy }
  db:
    image: postgres:15
    environment:
      POSTGRES_PASSWORD: test$$only
      POSTGRES_PORT: 5432
      EMPTY: ""
    healthcheck:
      test: ["CMD", "pg_isready", "-U", "postgres"]
      interval: 2s
      timeout: 3s
      retries: 4
      start_period: 10s
    expose: [5432]
    deploy: { resources: { limits: { memory: 512M } } }
  cache:
    image: redis:7
    command: redis-server --save "" --appendonly no
    environment: [A=b=c, EMPTY=]
    restart: no
    depends_on: [db]
    ports: ["6379"]
"""


def is_default(name: str, service: Mapping[str, Any]) -> bool:
    return name == "default"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "compose.yaml"


def refused(file: Path, text: str, **known: Any) -> str:
    file.write_text(text)
    with pytest.raises(ValueError, match=str(file)) as caught:
        read(file, is_default, **known)
    return str(caught.value)


def test_services_become_the_sandbox_and_its_companions(file: Path) -> None:
    file.write_text(WHOLE)
    db = Companion(
        name="db",
        image="postgres:15",
        env={"POSTGRES_PASSWORD": "test$only", "POSTGRES_PORT": "5432", "EMPTY": ""},
        ready=("pg_isready", "-U", "postgres"),
        ready_timeout=30,
        ready_interval=2,
        memory_mib=512,
        ports=(5432,),
    )
    cache = Companion(
        name="cache",
        image="redis:7",
        command=("redis-server", "--save", "", "--appendonly", "no"),
        env={"A": "b=c", "EMPTY": ""},
        ports=(6379,),
        depends_on=("db",),
    )
    main = Main(
        name="default",
        image="shop/app:1",
        env={"LOG_LEVEL": "info", "ANSWER": "no"},
        limits=Limits(cpu_millis=1500, memory_bytes=512 << 20),
    )
    assert read(file, is_default) == Project(main, (db, cache), {"profile": "services"})


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("build: .", "no image is built"),
        ("volumes: [a:/b]", "no directory of the host"),
        ("privileged: true", "no more rights"),
        ("network_mode: host", "no container has a network"),
        ("networks: [a]", "share no network"),
        ("env_file: a", "no other file"),
        ("restart: always", "not started again"),
        ("imge: a", "is not read"),
        ("command: 'a \"b'", "not closed"),
        ("command: []", "no program"),
        ("environment: { A: }", "has no value"),
        ("environment: [A]", "has no value"),
        ("environment: { A: true }", "text or a number"),
        ("environment: { A: $B }", "not known"),
        ("environment: { A: '${B}' }", "not known"),
        ("environment: { A: 'a$' }", "not known"),
        ("ports: ['5432:5432']", "write `5432` under `expose`"),
        ("ports: [{ target: 80, published: 80 }]", "no port of the host"),
        ("ports: ['3000-3005']", "a range is not read"),
        ("ports: [0]", "1 to 65535"),
        ("mem_limit: much", "must be a size"),
        ("deploy: { replicas: 2 }", "only `resources.limits.memory`"),
        ("healthcheck: { test: [a] }", "`test` must be"),
        ("healthcheck: { interval: 3s }", "must be text"),
        ("healthcheck: { test: a, timeout: 30 }", "must be a time"),
        ("depends_on: [other]", "no service is named"),
        ("depends_on: [default]", "is the sandbox"),
        ("depends_on: [db]", "depends on itself"),
        ("depends_on: { cache: { condition: service_healthy } }", "has no healthcheck"),
        ("depends_on: { cache: { condition: service_completed_successfully } }", "only the conditions"),
    ],
)
def test_anything_else_is_refused_by_its_line(file: Path, key: str, told: str) -> None:
    text = (
        "services:\n  default: { image: a }\n  cache: { image: a, expose: [1] }\n  db:\n    image: a\n"
        f"    expose: [1]\n    {key}\n"
    )
    if key.startswith("ports"):
        text = text.replace("    expose: [1]\n", "    x-line: 6\n")
    message = refused(file, text)
    assert f"{file}:7: services.db" in message, message
    assert told in message, message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("services: { a: { image: a, expose: [1] } }", "one service must be the sandbox"),
        ("services: {}", "1 to 32 services"),
        ("[a]", "must be a mapping"),
        ("services: { default: { image: a }, a_b: { image: a, expose: [1] } }", "as in a host name"),
        ("services: { default: { image: a }, localhost: { image: a, expose: [1] } }", "as in a host name"),
        ("services: { default: { image: a }, db: { image: a } }", "names no port"),
        ("services: { default: { image: a }, db: { expose: [1] } }", "`image` is missing"),
        ("services: { default: { image: a }, default: { image: b } }", "be there once"),
        ("services: { default: !secret a }", "tags are not read"),
        ("services: { default: { <<: { image: a } } }", "merge keys"),
        ("services: [", "expected"),
        ("volumes: { a: {} }\nservices: { default: { image: a } }", "volumes"),
        ("services: { default: { build: ../other } }", "can be built"),
    ],
)
def test_a_file_that_is_no_task_is_refused(file: Path, text: str, told: str) -> None:
    assert told in refused(file, text)


def test_files_that_grow_are_refused(file: Path) -> None:
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    bomb += "".join(f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9))
    assert "too many values" in refused(file, bomb)
    assert "too many values, or too deep" in refused(file, "[" * 40 + "]" * 40)
    assert "larger than" in refused(file, "#" * 1_100_000)


def test_variables_are_those_that_the_framework_gives(file: Path) -> None:
    file.write_text("services: { default: { image: '${IMAGE}', environment: { A: '${B:-c}', D: $E } } }")
    main = read(file, is_default, variables={"IMAGE": "", "E": "f"}).main
    assert main == Main("default", None, {"A": "c", "D": "f"})


def test_a_file_may_leave_the_sandbox_to_its_task() -> None:
    tree = {"services": {"db": {"image": "a", "expose": [1]}}}
    project = parse(tree, is_default, default_main="main")
    assert (project.main, [companion.name for companion in project.companions]) == (Main("main"), ["db"])
