"""Looks up the known vulnerabilities of the packages in a lock file. Ends with status 1 if there are some.

The database of vulnerabilities is that of pypi.org. A mirror of the packages often lacks it: then nothing is known of
any package, and this says so and ends with status 0, so that work goes on where there is no Internet.
"""

import json
import subprocess
import sys


def main(lock: str) -> int:
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--disable-pip",
        "--progress-spinner=off",
        "--format=json",
        "-r",
        lock,
    ]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    try:
        packages = json.loads(run.stdout)["dependencies"]
    except ValueError:
        print(f"audit: no answer, so nothing is known: {run.stderr.strip()[-300:]}")
        return 0 if "ConnectionError" in run.stderr or "Failed to establish" in run.stderr else 1
    known = [package for package in packages if "skip_reason" not in package]
    found = [(package, each) for package in known for each in package["vulns"]]
    for package, each in found:
        fixed = ", ".join(each["fix_versions"]) or "no version yet"
        print(f"audit: {package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    if not known:
        print(f"audit: the database of vulnerabilities cannot be reached; none of {len(packages)} packages was audited")
    else:
        print(f"audit: {len(known)} packages of {len(packages)}, {len(found)} known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
