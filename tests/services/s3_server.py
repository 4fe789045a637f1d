"""An S3 endpoint on this machine (moto), with conditional writes that are atomic."""

from __future__ import annotations

import sys
from typing import Any

from .service import HOST, Service, ServiceError, answers, command_line, free_ports

ACCESS_KEY, SECRET_KEY, REGION = "testing", "testing-secret", "us-east-1"

# moto checks a condition and writes in two steps: one writing request at a time makes them one
_PROGRAM = """
import io, json, random, sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

moto, writing = DomainDispatcherApplication(create_backend_app), threading.RLock()
share, chance = float(sys.argv[3]), random.Random(int(sys.argv[4]))
counts = {"requests": 0, "bytes": 0}

def serve(request, start):
    # how many requests there were, and how many bytes their answers had
    if request["PATH_INFO"] == "/-/counts":
        text = json.dumps(counts).encode()
        start("200 OK", [("Content-Length", str(len(text)))])
        return [text]
    counts["requests"] += 1
    return sized(checked(request, start))

def sized(parts):
    for part in parts:
        counts["bytes"] += len(part)
        yield part

def checked(request, start):
    # a share of requests is turned away, or loses its answer, under the prefix `shaky`
    strikes = share and "/shaky" in request["PATH_INFO"] and chance.random() < share
    if strikes and chance.random() < 0.5:
        request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
        start("503 Slow Down", [("Content-Length", "0")])
        return [b""]
    if strikes:
        answered(request, lambda *given: lambda data: None)
        start("500 Internal Server Error", [("Content-Length", "0")])
        return [b""]
    return answered(request, start)

def answered(request, start):
    if request["REQUEST_METHOD"] not in ("PUT", "POST", "DELETE"):
        return moto(request, start)
    size = int(request.get("CONTENT_LENGTH") or 0)
    if size and not request.get("HTTP_TRANSFER_ENCODING"):
        request["wsgi.input"] = io.BytesIO(request["wsgi.input"].read(size))
    with writing:
        return list(moto(request, start))

WSGIRequestHandler.protocol_version = "HTTP/1.1"
run_simple(sys.argv[1], int(sys.argv[2]), serve, threaded=True)
"""


class S3(Service):
    """`info`: `endpoint`, `access_key`, `secret_key`, `region`, lakebed's `options` and Spark's settings (`spark`).

    With `errors` this share of the requests for what is below `shaky` in a bucket fails, drawn from a `seed`."""

    name = "s3"

    def install(self) -> None:
        try:
            import boto3  # noqa: F401
            import moto.server  # noqa: F401
        except ImportError as error:
            raise ServiceError("the S3 server needs: pip install 'moto[s3,server]'") from error

    def launch(self) -> dict[str, Any]:
        import boto3

        (port,) = free_ports(1)
        env = {"S3_IGNORE_SUBDOMAIN_BUCKETNAME": "true"}
        errors, seed = self.options.get("errors", 0), self.options.get("seed", 0)
        process = self.spawn([sys.executable, "-c", _PROGRAM, HOST, port, errors, seed], "s3", env)
        self.wait(lambda: answers(port), "open port", process)
        endpoint = f"http://{HOST}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
        )
        for bucket in filter(None, str(self.options.get("buckets", "lake")).split(",")):
            client.create_bucket(Bucket=bucket)
        hadoop = {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
            "fs.s3a.endpoint.region": REGION,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
        }
        return {
            "endpoint": endpoint,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "region": REGION,
            "options": {
                "endpoint_url": endpoint,
                "aws_access_key_id": ACCESS_KEY,
                "aws_secret_access_key": SECRET_KEY,
                "region": REGION,
            },
            "hadoop": hadoop,
            "spark": {f"spark.hadoop.{name}": value for name, value in hadoop.items()},
        }


if __name__ == "__main__":
    command_line(S3, buckets="lake")
