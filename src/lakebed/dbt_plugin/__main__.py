"""`python -m lakebed.dbt_plugin` prints the folder of the dbt package."""

from pathlib import Path

print(Path(__file__).with_name("package"))
