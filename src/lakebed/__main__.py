"""`python -m lakebed`: the command line."""

from lakebed.cli.start import run

if __name__ == "__main__":
    run()
