"""Holds events to the schema of the class API Activity of the Open Cybersecurity Schema Framework 1.3.0, without a network.

Standard input: one event a line. Prints for each `fits`, or where it does not and why.
"""

import json
import socket
import sys


def refuse(*_arguments, **_named):
    raise OSError("this check uses no network")


socket.socket.connect = refuse
socket.create_connection = refuse

import jsonschema
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

SCHEMA = OcsfJsonSchemaEmbedded(get_ocsf_schema(version="1.3.0")).get_class_schema("api_activity")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

for line in sys.stdin.buffer:
    problem = next(VALIDATOR.iter_errors(json.loads(line)), None)
    print("fits" if problem is None else f"{problem.json_path}: {problem.message}".replace("\n", " "))
