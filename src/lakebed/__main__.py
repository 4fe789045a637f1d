"""`python -m lakebed`: the command line."""

from lakebed.cli.main import run

if __name__ == "__main__":
    run()
