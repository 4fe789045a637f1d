"""The sentences of the benchmark page, and why another format takes less CPU than lakebed in a task."""

from __future__ import annotations

INTRODUCTION = (
    "`make bench` runs lakebed beside other table formats and makes this page. All sides get the same rows and tasks,",
    "each in a process of its own. After each task the rows of the table, or of the answer, are compared: where a side",
    "has other rows, no page is made. Figures are CPU seconds of the whole process tree; take them as ratios, since",
    "another machine has other ones. Writes are means of their runs, with the table services that they run (cleaning,",
    "archival, compaction): that is what a user pays. The upserts of 10 rows have the median of the runs without",
    "services, too. Reads are medians.",
)
ORDER = (
    "Tasks run in this order on one table: load, upsert of 1 %, incremental read, upserts of 10 rows, lookups, range",
    "query, scan, delete, upsert of 10 %, MERGE. So reads are of a table that has been written to, as each format",
    "leaves it by its defaults: nothing is compacted before a read that no figure of a write has. 14 of 15 rows of an",
    "upsert have known keys. Keys are random. Small commits are upserts of ten rows into a table of 1,000 rows.",
)
WARM = (
    "",
    "Scans and range queries are those of a warm process, after three that do not count: the kernel clears the memory",
    "that the first ones take, which its share shows. The first scan has a line of its own.",
)
ROUNDS = (
    "What a call costs where each answer takes long is the number of its rounds: its longest chain of requests that",
    "wait for one another. With 30 ms an answer, ten rounds are 0.3 s. In brackets is the number of its requests, with",
    "those that it makes after it has returned. The store is an S3 server that waits before each answer",
    "(`bench/rounds.py`). The table has 20,000 rows in four partition paths (in Lance: in none); upserts are of ten",
    "rows of one path. A new process opens the table first. Iceberg's catalog is a local file, whose requests do not",
    "count.",
)
ON_SPARK = (
    "`local[2]`, 4 GB of heap, a warm session for each side. Rows come as a DataFrame of Parquet files; reads are"
    " consumed and not collected, but for lookups. Hudi runs on the newest Spark that it supports."
)
_LOGS = "After small upserts a merge-on-read table has log files, which a read merges until they are compacted."
_COMMIT = (
    "Most of lakebed's CPU is the commit: the actions on the timeline and the files of the metadata table, in Hudi's"
    " format."
)
_KEYS = "An index on the key (Lance has a B-tree) names the row; lakebed's bucket index names the file."
PROCESS_REASONS = {
    "load": "lakebed places each row in its bucket by a hash of the key, and writes the five columns of Hudi's format.",
    "upsert_percent": f"lakebed writes log files of Avro records in Hudi's format. {_COMMIT}",
    "upsert_ten": _COMMIT,
    "upsert_ten:mean": f"{_COMMIT} The mean has the services that the upserts ran.",
    "upsert_tenth": "lakebed writes log files of Avro records in Hudi's format, and compacts them when that is due.",
    "delete": _COMMIT,
    "merge": "lakebed reads the stored rows out of base files and logs, since the new values depend on them.",
    "lookup": f"{_KEYS} The first lookup in a file reads its key column, where the file does not show the rows of"
    " keys.",
    "lookup_many": "Nearly every page holds one of 1,000 random keys, so lakebed decompresses nearly all of them, and"
    " decodes those that are not plain. Lance's B-tree names the rows; the others filter while they scan.",
    "range": "Days are random, so nearly every page holds a match, and lakebed decompresses all of them. Its files are"
    " zstd, those of Delta Lake and Lance take more bytes and less time.",
    "fresh_get": "A new process of lakebed imports pyarrow and its own sources, and reads the timeline and the metadata"
    " table before the file.",
    "scan": "Arrow's decoding of the base files is most of lakebed's CPU, merging the log files the rest. lakebed gives"
    " plain text columns; deltalake gives views of what it decoded.",
    "incremental": "lakebed decodes log records, which are Avro rows, and compares them with what the footers of base"
    " files show; base files of a copy-on-write table hold all rows of their file groups. The others have the rows of"
    " an upsert in columnar files of their own, or in a feed of changes that writes pay for.",
    "commits": "lakebed writes a timeline and a metadata table in Hudi's format, syncs each file, and cleans, compacts"
    " and archives as it goes.",
}
SPARK_REASONS = {
    **PROCESS_REASONS,
    "load": "lakebed shuffles rows to their buckets, hands them to Python once, and writes five columns more.",
    "upsert_percent": "lakebed hands the rows to Python once and writes log files of Avro records in Hudi's format.",
    "lookup": "lakebed looks the key up in the driver's process, without a job of Spark.",
    "incremental": "Log records of lakebed go through Python. The others have the rows of an upsert in columnar files"
    " of their own, or in a feed of changes that writes pay for.",
    "scan": f"{_LOGS} Rows that a log touches go through Python.",
    "range": f"{_LOGS} Rows that a log touches go through Python.",
}
