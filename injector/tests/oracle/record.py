#!/usr/bin/env python3
"""Asks kubectl again for every input of the recordings beside this file, and writes its answers into them."""

import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def kubectl(text, *arguments):
    """The object that kubectl prints, or its complaint."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        done = subprocess.run(
            ["kubectl", *arguments, "--local", "-f", file.name, "-o", "json"], capture_output=True, text=True
        )
    if done.returncode:
        complaint = done.stderr.strip().split("\n")[0].removeprefix("error: ")
        return None, complaint.replace(f"error parsing {file.name}: ", "")[:120]
    return json.loads(done.stdout), None


def merges(case):
    patch = json.dumps(case["patch"])
    merged, error = kubectl(json.dumps(case["original"]), "patch", "--type=strategic", "-p", patch)
    answer = {"error": error} if error else {"merged": merged}
    return {"original": case["original"], "patch": case["patch"], **answer}


def quantities(case):
    pod, error = kubectl(json.dumps(POD), "set", "resources", "--limits", f"cpu={case[0]}")
    assert not error, error
    return [case[0], pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]]


def yaml(case):
    head = "apiVersion: v1\nkind: Example\nmetadata:\n  name: x\n"
    read, error = kubectl(head + case["yaml"], "label", "q=1")
    return {"yaml": case["yaml"], **({"error": error} if error else {"json": read["x"]})}


for record in (merges, quantities, yaml):
    path = HERE / f"{record.__name__}.json"
    cases = [json.dumps(record(case), separators=(",", ":")) for case in json.loads(path.read_text())]
    path.write_text("[\n" + ",\n".join(cases) + "\n]\n")
