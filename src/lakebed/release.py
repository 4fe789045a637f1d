"""The release of lakebed that this is: what `lakebed --version` prints, and what commits are marked with."""

VERSION = "0.1.0"
