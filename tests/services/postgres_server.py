"""PostgreSQL of Debian's package, or any other that has initdb and postgres."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .service import HOST, Service, ServiceError, command_line, free_ports


class Postgres(Service):
    """`info`: `uri`, the address of an empty database with its user."""

    name = "postgres"

    def install(self) -> None:
        of_debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
        program = str(of_debian[-1]) if of_debian else shutil.which("initdb")
        if program is None:
            raise ServiceError("PostgreSQL is needed (Debian: apt-get install --no-install-recommends postgresql)")
        self._programs = Path(program).parent

    def launch(self) -> dict[str, Any]:
        (port,) = free_ports(1)
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        as_user: list[str] = []
        if os.getuid() == 0:  # the server refuses to run as root
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            self.folder.chmod(0o755)
            shutil.chown(data, "postgres", "postgres")
        make = [*as_user, self._programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        made = subprocess.run([*make, "--locale=C", "--no-sync"], cwd="/", capture_output=True, text=True, check=False)
        if made.returncode:
            raise ServiceError(f"postgres: the database cannot be made:\n{(made.stdout + made.stderr)[-2000:]}")
        settings = {
            "listen_addresses": HOST,
            "port": port,
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "32MB",
            "wal_level": "logical",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = self.spawn([*as_user, self._programs / "postgres", "-D", data, *options], "postgres")
        ready = [str(self._programs / "pg_isready"), "-h", HOST, "-p", str(port), "-q"]
        self.wait(lambda: subprocess.run(ready, check=False).returncode == 0, "connections accepted", process)
        return {"uri": f"postgresql://postgres@{HOST}:{port}/postgres"}


if __name__ == "__main__":
    command_line(Postgres)
